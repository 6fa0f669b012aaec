#!/usr/bin/env python3
"""Does `ridge diagnose` find a bottleneck that was planted? Plants each of eight, and nothing, again and again, and counts the verdicts.

    build/venv/bin/python tools/planted_bottlenecks.py --ridge build/release/bin/ridge            # all, ten times each; wants a quiet machine
    build/venv/bin/python tools/planted_bottlenecks.py --only quota,server --trials 3 --keep trials

What is planted: see PLANTED below. The models are random and made here (needs numpy and gguf, which build/venv has). Each trial leaves NAME-NN.json, the report of
ridge diagnose as it was, and NAME-NN.log, the command and what stood on stderr, in the folder of --keep. Trials whose report is there are not run again, so a run that was cut short
(--seconds) goes on, and the table is always that of all reports in the folder. A trial during which other programs took more than 6 % of the CPUs, or the host more than
3 %, is put aside (NAME-NN.disturbed-K.json, counted in the table) before its verdict is looked at, and run again. "wrong" is a verdict that names another cause than the one that was planted;
"undetermined" is none, or "the work itself" where something was planted. Exit status 0 where each has nine right verdicts of ten and no trial failed to run.
"""
import argparse
import contextlib
import ctypes
import glob
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "python"))
WORK = ["-n", "16", "-r", "3", "--requests", "6"]
SECONDS, SECONDS_SLOW = "12", "28"  # of ridge diagnose --time: what decides comes first
SLEEP_MS, CLIENT_MS, STAGES = 60, 20, ["receive", "write", "tokenize", "deliver"]
OUTSIDE = {"power_thermal", "service", "capacity"}
MOST_OTHERS, MOST_STEAL = 0.06, 0.03  # of all CPU time, while a trial runs


def make_model(path, width, ffn, layers):
    """Random weights of one block, in every layer of the file."""
    if os.path.exists(path):
        return path
    import tiny_model

    tiny_model.WIDTH, tiny_model.HEADS, tiny_model.KV_HEADS, tiny_model.HEAD_DIM = width, width // 64, width // 192, 64
    tiny_model.FFN, tiny_model.LAYERS = ffn, layers
    tiny_model.write_tiny_model(path + ".part", context=4096, kind="Q8_0")
    os.rename(path + ".part", path)
    return path


@contextlib.contextmanager
def cgroup(controller, settings):
    """A new cgroup (v1, or v2 where the controller is delegated); yields what a child calls to enter it. settings: file -> value, for either version."""
    v1 = f"/sys/fs/cgroup/{controller}"
    base = v1 if os.path.isdir(v1) else "/sys/fs/cgroup"
    folder = os.path.join(base, f"ridge-planted-{os.getpid()}")
    os.mkdir(folder)
    try:
        for name, value in settings.items():
            with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, name), "r+") as f:  # of the other version
                f.write(value)

        def enter():
            with open(os.path.join(folder, "cgroup.procs"), "w") as f:
                f.write(str(os.getpid()))

        yield enter
    finally:
        for _ in range(50):
            try:
                os.rmdir(folder)
                break
            except OSError:
                time.sleep(0.1)


class Watch:
    """What this trial's processes did not use of the CPU time that was used, and what the host took, as shares of all CPU time."""

    def __init__(self):
        self.begin = self.now()

    @staticmethod
    def now():
        with open("/proc/stat", encoding="ascii") as f:
            ticks = [int(t) / os.sysconf("SC_CLK_TCK") for t in f.readline().split()[1:9]]
        user, nice, system, _, _, irq, soft, steal = ticks
        own = sum(getattr(resource.getrusage(who), field) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF) for field in ("ru_utime", "ru_stime"))
        return user + nice + system + irq + soft - own, steal, time.monotonic()

    def shares(self):
        others, steal, seconds = (b - a for a, b in zip(self.begin, self.now()))
        all_time = seconds * os.cpu_count()
        return max(0.0, others / all_time), steal / all_time


class Trial:
    def __init__(self, options, number, small, large):
        self.options, self.number, self.small, self.large = options, number, small, large
        self.note = ""

    def run(self, *arguments, model=None, prompt=64, seconds=SECONDS, enter=None, while_running=None):
        command = [self.options.ridge, "diagnose", "-m", model or self.small, "-p", str(prompt), *WORK, "--time", seconds, *arguments, "--json"]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=enter)
        done = threading.Event()
        beside = threading.Thread(target=while_running, args=(child, done)) if while_running else None
        if beside:
            beside.start()
        out, err = child.communicate()
        done.set()
        if beside:
            beside.join()
        return command, child.returncode, out, err

    # --- what is planted ---

    def nothing(self):
        return self.run()

    def quota(self):
        """a cgroup that gives half of this machine's CPU time; SIGSTOP for half of each 40 ms where no cgroup can be made"""
        cpus = len(os.sched_getaffinity(0))
        try:
            with cgroup("cpu", {"cpu.cfs_quota_us": str(50000 * cpus), "cpu.max": f"{50000 * cpus} 100000"}) as enter:
                return self.run(enter=enter)
        except OSError as error:
            self.note = f"SIGSTOP in place of a quota: {error}"

        def stop_and_go(child, done):
            while not done.is_set() and child.poll() is None:
                for s in (signal.SIGSTOP, signal.SIGCONT):
                    with contextlib.suppress(ProcessLookupError):
                        child.send_signal(s)
                    time.sleep(0.02)

        return self.run(while_running=stop_and_go)

    def threads(self):
        """-t 1"""
        return self.run("-t", "1")

    def bandwidth(self):
        """another process that copies memory on one CPU, the run on the other with a model of 350 MB, of which each token reads all"""
        cpus = sorted(os.sched_getaffinity(0))
        child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--copy", str(cpus[-1])], stdout=subprocess.PIPE)
        child.stdout.readline()  # it copies now
        try:
            return self.run("-t", "1", model=self.large, prompt=16, seconds=SECONDS_SLOW, enter=lambda: os.sched_setaffinity(0, cpus[:1]))
        finally:
            child.kill()
            child.wait()

    def isa(self):
        """--isa scalar"""
        return self.run("--isa", "scalar", seconds="18")

    def server(self):
        """ridge serve --plant-sleep, 60 ms in one of the stages outside of the engine, in turn; diagnosed by its URL"""
        stage = STAGES[self.number % len(STAGES)]
        ms = SLEEP_MS // 10 if stage == "deliver" else SLEEP_MS  # it sleeps for each token
        self.note = f"{stage}={ms}"
        command = [self.options.ridge, "serve", "-m", self.small, "--port", "0", "--json", "-c", "512", "--no-prefix-cache", "--plant-sleep", self.note]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            text = ""
            while not text.endswith("\n}\n"):
                line = child.stdout.readline()
                if not line:
                    return command, 1, b"", b"the server ended early"
                text += line
            return self.run(json.loads(text)["url"], seconds="6")
        finally:
            child.terminate()
            child.wait()

    def memory(self):
        """a limit below the model's size: address space (RLIMIT_AS) and memory cgroup in turn; no swap is used, so the model is refused"""
        most = os.path.getsize(self.large) * 2 // 3
        if self.number % 2 == 0:
            self.note = f"RLIMIT_AS {most >> 20} MiB"
            return self.run(model=self.large, enter=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)))
        try:
            with cgroup("memory", {"memory.limit_in_bytes": str(most), "memory.max": str(most)}) as enter:
                self.note = f"cgroup {most >> 20} MiB"
                return self.run(model=self.large, enter=enter)
        except OSError as error:
            self.note = f"RLIMIT_AS in place of a cgroup: {error}"
            return self.run(model=self.large, enter=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)))

    def client(self):
        """a client that takes 20 ms over each piece of text"""
        return self.run("--client-delay", str(CLIENT_MS), seconds="6")

    def batch(self):
        """-ub 1"""
        return self.run("-ub", "1")


# name -> the verdict that is right
PLANTED = {
    "nothing": lambda v: v["cause"] is None and v["bottleneck"] not in OUTSIDE,
    "quota": lambda v: v["bottleneck"] == "power_thermal",
    "threads": lambda v: v["cause"] == "threads",
    "bandwidth": lambda v: v["bottleneck"] == "memory_bandwidth",
    "isa": lambda v: v["cause"] == "isa",
    "server": lambda v: v["cause"] == "server",
    "memory": lambda v: v["bottleneck"] == "capacity",
    "client": lambda v: v["cause"] == "client",
    "batch": lambda v: v["cause"] == "batch",
}


def judge(name, verdict):
    """Nothing is promised of the work itself: where nothing is planted, any part of it, or none, is right."""
    if PLANTED[name](verdict):
        return "right"
    return "undetermined" if verdict["bottleneck"] == "undetermined" else "wrong"


def copy_memory(cpu):
    os.sched_setaffinity(0, {cpu})
    size = 512 << 20
    a, b = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
    print("copies", flush=True)
    while True:
        ctypes.memmove(a, b, size)


def table(folder):
    """The table of the reports in a folder; whether all is well."""
    well = True
    print(f"{'planted':<11}{'trials':>7}{'right':>7}{'undetermined':>14}{'wrong':>7}{'failed':>8}{'disturbed':>11}   seconds   verdicts")
    for name in PLANTED:
        paths = sorted(glob.glob(os.path.join(folder, f"{name}-[0-9][0-9].json")))
        if not paths:
            continue
        counts, verdicts, seconds = {"right": 0, "undetermined": 0, "wrong": 0, "failed": 0}, {}, []
        for path in paths:
            with open(path, encoding="utf-8") as f:
                text = f.read()
            if not text:
                counts["failed"] += 1
                continue
            d = json.loads(text)
            v = d["verdict"]
            counts[judge(name, v)] += 1
            said = v["bottleneck"] + (f" ({v['cause']})" if v["cause"] else "")
            verdicts[said] = verdicts.get(said, 0) + 1
            seconds.append(d["seconds"])
        if counts["right"] < 0.9 * len(paths) or counts["failed"]:
            well = False
        aside = len(glob.glob(os.path.join(folder, f"{name}-*.disturbed-*.json")))
        spent = f"{min(seconds):.0f} to {max(seconds):.0f}" if seconds else "-"
        print(f"{name:<11}{len(paths):>7}{counts['right']:>7}{counts['undetermined']:>14}{counts['wrong']:>7}{counts['failed']:>8}{aside:>11}   {spent:<9} " + ", ".join(f"{n} x {s}" for s, n in sorted(verdicts.items())))
    return well


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ridge", default="build/release/bin/ridge")
    parser.add_argument("--trials", type=int, default=10, help="of each")
    parser.add_argument("--only", default=",".join(PLANTED), help="names, with commas between")
    parser.add_argument("--keep", default="planted-trials", help="folder of models and reports")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no trial later than this")
    parser.add_argument("--copy", type=int, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.copy is not None:
        copy_memory(o.copy)
    names = o.only.split(",")
    if unknown := set(names) - set(PLANTED):
        sys.exit(f"--only: {', '.join(sorted(unknown))}: not one of {', '.join(PLANTED)}")
    o.ridge = os.path.abspath(o.ridge)
    os.makedirs(o.keep, exist_ok=True)
    small = make_model(os.path.join(o.keep, "small.gguf"), 576, 1536, 10)
    large = make_model(os.path.join(o.keep, "large.gguf"), 1536, 4608, 12)
    begin = time.monotonic()
    for number, name in [(n, name) for _ in range(3) for n in range(o.trials) for name in names]:  # three times: some are disturbed
        path = os.path.join(o.keep, f"{name}-{number:02}.json")
        if os.path.exists(path):
            continue
        if time.monotonic() - begin > o.seconds:
            continue
        trial, watch, started = Trial(o, number, small, large), Watch(), time.monotonic()
        command, status, out, err = getattr(trial, name)()
        others, steal = watch.shares()
        trial.note += f" (others {100 * others:.1f} %, host {100 * steal:.1f} % of the CPUs)"
        if time.monotonic() - started > 2 and (others > MOST_OTHERS or steal > MOST_STEAL):
            path = path[:-5] + f".disturbed-{int(time.time())}.json"
        with open(path[:-5] + ".log", "wb") as f:
            f.write(f"{' '.join(command)}\nstatus {status}; {trial.note}\n".encode() + err)
        with open(path, "wb") as f:
            f.write(out if status == 0 else b"")
        verdict = json.loads(out)["verdict"] if status == 0 else {"reason": err.decode(errors="replace").strip()[-300:]}
        print(f"{name}-{number:02}: {judge(name, verdict) if status == 0 else 'failed'}: {verdict.get('bottleneck')} ({verdict.get('cause')}): {verdict['reason']} {trial.note}{' DISTURBED' if 'disturbed' in path else ''}", flush=True)
    print()
    sys.exit(0 if table(o.keep) else 1)


if __name__ == "__main__":
    main()
