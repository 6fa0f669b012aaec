#!/usr/bin/env python3
"""How good the speeds of `ridge plan -m` are: predicted against measured, on files and contexts, and the ranking of formats.

    tools/plan_accuracy.py --ridge build/release/bin/ridge --contexts 128,1024,4096 a.gguf b.gguf c.gguf

Needs a quiet machine and its roofline (ridge roofline). Prints one line a case, how many lie within ten percent, and Spearman's rank
correlation of the files at the first context where there are four or more. Each measurement is the best interval that `ridge bench` gives;
files take turns. Exit status 0 if every case lies within ten percent and the correlation is at least 0.9.
"""
import argparse
import json
import subprocess
import sys


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0] * len(values)
    for rank, i in enumerate(order):
        out[i] = rank
    return out


def spearman(a, b):
    ra, rb, n = ranks(a), ranks(b), len(a)
    return 1 - 6 * sum((x - y) ** 2 for x, y in zip(ra, rb)) / (n * (n * n - 1))


def document(command):
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=900)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: {run.stderr.decode(errors='replace').strip()}")
    return json.loads(run.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ridge", default="build/release/bin/ridge")
    parser.add_argument("--contexts", default="128,1024,4096")
    parser.add_argument("--threads", default="")
    parser.add_argument("--device", default="this", help="what ridge roofline --json wrote here, where it was not kept because the machine was not quiet")
    parser.add_argument("-n", type=int, default=16)
    parser.add_argument("-r", type=int, default=5)
    parser.add_argument("files", nargs="+")
    o = parser.parse_args()
    threads = ["-t", o.threads] if o.threads else []
    near, cases, first = 0, 0, {}
    for context in (int(c) for c in o.contexts.split(",")):
        measured = {}
        rows = document([o.ridge, "bench", "-m", ",".join(o.files), "-p", "0", "-n", str(o.n), "-d", str(context - o.n // 2), "-r", str(o.r), *threads, "-o", "json"])
        for row in rows:
            measured[row["model_filename"]] = row["median_ts"]
        for path in o.files:
            plan = document([o.ridge, "plan", "-m", path, "--context", str(context), "--device", o.device, *threads, "--json"])
            if plan["file"]["decode_ts"] is None:
                sys.exit(f"no prediction: {plan['device']['roofline_reason'] or plan['file']['speed_reason']}")
            predicted = plan["file"]["decode_ts"]["expected"]
            ratio = predicted / measured[path]
            cases += 1
            near += abs(ratio - 1) <= 0.1
            first.setdefault(path, (predicted, measured[path]))
            print(f"{path.rsplit('/', 1)[-1]:40} context {context:6}: predicted {predicted:8.2f}, measured {measured[path]:8.2f} tokens/s, ratio {ratio:.3f}", flush=True)
    print(f"{near} of {cases} within 10 %")
    good = near == cases
    if len(first) >= 4:
        rho = spearman([p for p, _ in first.values()], [m for _, m in first.values()])
        print(f"Spearman's rank correlation of {len(first)} files at the first context: {rho:.3f}")
        good = good and rho >= 0.9
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
