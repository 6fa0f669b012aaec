#!/usr/bin/env python3
"""Runs the fuzz targets of build/fuzz/bin: `run_fuzz.py [NAME] [SECONDS]`, or `--total SECONDS` over all of them.

fuzz/corpus/NAME/ holds the seeds; what a run finds new goes to build/fuzz/corpus/NAME/, an input that breaks something to
build/fuzz/found/. An input that takes over 5 s (with --total a minute: CI's machines may stand still), or memory over 2 GiB, counts as broken.
"""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "build", "fuzz", "bin")
# --total is what CI runs: the same inputs each time (one seed, a bounded number of them), so that a red run is about the change that it tests.
# Looking for new ones is `run_fuzz.py NAME SECONDS`.
CI_RUNS = {"tokenizer": 5000, "template": 60000}
CI_RUNS_ELSE = 400000


def fuzz(name, seconds, fixed=False):
    found = os.path.join(ROOT, "build", "fuzz", "found")
    new = os.path.join(ROOT, "build", "fuzz", "corpus", name)
    seeds = os.path.join(ROOT, "fuzz", "corpus", name)
    os.makedirs(found, exist_ok=True)
    os.makedirs(new, exist_ok=True)
    arguments = [os.path.join(BIN, name + "_fuzz"), new] + ([seeds] if os.path.isdir(seeds) else [])
    arguments += [f"-max_total_time={seconds}", f"-timeout={60 if fixed else 5}", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=1",
                  f"-artifact_prefix={found}/{name}-"]
    if fixed:
        arguments += ["-seed=1", f"-runs={CI_RUNS.get(name, CI_RUNS_ELSE)}"]
    run = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
    if run.returncode != 0:
        print("\n".join(run.stdout.splitlines()[-40:]))
        print(f"fuzz {name}: FAILED; the input is in {found}")
        return False
    runs = [line.split()[-1] for line in run.stdout.splitlines() if "number_of_executed_units" in line]
    print(f"fuzz {name}: {runs[0] if runs else '?'} inputs in at most {seconds} s")
    return True


def main(arguments):
    names = sorted(name.removesuffix("_fuzz") for name in os.listdir(BIN) if name.endswith("_fuzz")) if os.path.isdir(BIN) else []
    total, fixed = 60, arguments[:1] == ["--total"]
    if fixed:
        total = int(arguments[1])
    elif arguments:
        if arguments[0] not in names:
            print(f"no fuzz target {arguments[0]!r}; there are: {' '.join(names) or 'none'}")
            return 2
        names = [arguments[0]]
        total = int(arguments[1]) if len(arguments) > 1 else total
    if not names:
        print("no fuzz targets are built")
        return 1
    seconds = max(1, total // len(names))
    return 0 if all([fuzz(name, seconds, fixed) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
