#!/usr/bin/env python3
"""What do monitoring and tracing cost a run? Measures it at a dose that can be seen, and scales down; asserts nothing.

    tools/observer_cost.py --ridge build/release/bin/ridge -m smollm2:135m        # about 4 minutes on a quiet machine

The lab samples the machine five times a second and times the ops of one step in 64. What that costs is less than what two equal runs differ by, so here
  - the machine is sampled --faster times as often (ridge monitor), stopped and let go on by turns while one `ridge bench` runs: off on on off, a second each;
  - the ops of every step are timed (--op-trace 1), in runs of their own: off on on off.
In between are blocks in which nothing is switched on: how much equals differ (A/A). Told are medians over blocks of the time with / without, and their intervals (the least ranks with 95 %),
and from these the cost at the lab's own dose. A sample that comes seldom finds colder caches: its CPU time is measured at both rates, and the cost scaled by it too.
Blocks during which others took more than 6 % of the CPUs are left out as a whole, and counted.
"""
import argparse
import json
import math
import os
import resource
import signal
import statistics
import subprocess
import sys
import time

LAB_INTERVAL_MS, LAB_TRACE = 200, 64
MOST_OTHERS = 0.06


def others_clock():
    with open("/proc/stat", encoding="ascii") as f:
        user, nice, system, _, _, irq, soft, _ = (int(t) for t in f.readline().split()[1:9])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def cpu_of(pids):
    used = sum(getattr(resource.getrusage(who), field) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF) for field in ("ru_utime", "ru_stime"))
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            used += sum(int(t) for t in f.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")
    return used


def interval(values):
    """(median, low, high): ranks that hold the median with 95 %; None where there are too few."""
    values, n = sorted(values), len(values)
    if n == 0:
        return None
    k = 0
    while k + 1 <= n // 2 and 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n <= 0.05:
        k += 1
    return (statistics.median(values), values[k - 1], values[n - k]) if k else (statistics.median(values), None, None)


def watch_blocks(o, blocks, faster):
    """Ratios of time with / without the monitor, those of blocks without it, and how many were disturbed."""
    slices = 4 * 2 * blocks
    command = [o.ridge, "bench", "-m", o.model, "-p", "0", "-n", "16", "-r", "100000", "-o", "json"]
    probe = json.loads(subprocess.run([*command[:-3], "20", "-o", "json"], stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout)[0]
    rep_s = statistics.median(probe["samples_ns"]) * 1e-9
    command[command.index("100000")] = str(int(1.15 * (slices * o.slice_s + 3) / rep_s))
    bench = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    monitor = subprocess.Popen([o.ridge, "monitor", "--interval", str(LAB_INTERVAL_MS // faster), "--pid", str(bench.pid), "--csv", os.devnull], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(2)  # loaded, steady
    marks, plan = [], []
    for _ in range(blocks):
        plan += [False, True, True, False, False, False, False, False]
    for on in plan:
        monitor.send_signal(signal.SIGCONT if on else signal.SIGSTOP)
        begin, others = time.clock_gettime(time.CLOCK_MONOTONIC_RAW), others_clock() - cpu_of([bench.pid, monitor.pid])
        time.sleep(o.slice_s)
        marks.append((begin, time.clock_gettime(time.CLOCK_MONOTONIC_RAW), others_clock() - cpu_of([bench.pid, monitor.pid]) - others))
    monitor.send_signal(signal.SIGCONT)
    monitor.terminate()
    monitor.wait()
    row = json.loads(bench.communicate()[0])[0]
    reps = [(at, at + ns * 1e-9, ns) for at, ns in zip(row["samples_at_s"], row["samples_ns"])]
    value = [[ns for a, b, ns in reps if a >= begin and b <= end] for begin, end, _ in marks]
    on, same, disturbed = [], [], 0
    for i in range(0, len(plan), 4):
        took = sum(m[2] for m in marks[i : i + 4]) / sum(m[1] - m[0] for m in marks[i : i + 4]) / os.cpu_count()
        if took > MOST_OTHERS or not all(value[i : i + 4]):
            disturbed += 1
            continue
        a, b, c, d = (math.log(statistics.fmean(v)) for v in value[i : i + 4])
        (on if plan[i + 1] else same).append(math.exp((b + c - a - d) / 2))
    return on, same, disturbed


def trace_blocks(o, blocks):
    on, same, disturbed = {"prefill": [], "decode": []}, {"prefill": [], "decode": []}, 0
    took = {"prefill": [], "decode": []}  # without

    def run(every):
        rows = json.loads(subprocess.run([o.ridge, "bench", "-m", o.model, "-p", "128", "-n", "64", "-r", "3", "--no-warmup", "--op-trace", str(every), "-o", "json"], stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout)
        return {"prefill" if r["n_prompt"] else "decode": statistics.median(r["samples_ns"]) for r in rows}

    for _ in range(blocks):
        for every, kept in ((1, on), (0, same)):
            begin, others = time.monotonic(), others_clock() - cpu_of([])
            a, b, c, d = (run(e) for e in (0, every, every, 0))
            if (others_clock() - cpu_of([]) - others) / (time.monotonic() - begin) / os.cpu_count() > MOST_OTHERS:
                disturbed += 1
                continue
            for phase in kept:
                took[phase] += [a[phase], d[phase]]
                kept[phase].append(math.sqrt(b[phase] * c[phase] / (a[phase] * d[phase])))
    return on, same, took, disturbed


def cpu_of_a_sample(o, interval_ms, seconds):
    """ms of CPU time, while a benchmark runs."""
    bench = subprocess.Popen([o.ridge, "bench", "-m", o.model, "-p", "0", "-n", "16", "-r", "100000", "-o", "json"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1.5)
    try:
        d = json.loads(subprocess.run([o.ridge, "monitor", "--interval", str(interval_ms), "--count", str(int(1000 * seconds / interval_ms)), "--pid", str(bench.pid), "--json"], stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout)
    finally:
        bench.kill()
        bench.wait()
    return d["observer_cpu_percent"] / 100 * interval_ms


def told(name, values):
    if not values:
        return f"{name:<34} no block was quiet"
    median, low, high = interval(values)
    return f"{name:<34} {median:.4f} ({low:.4f} to {high:.4f}), {len(values)} blocks" if low else f"{name:<34} {median:.4f}, {len(values)} blocks: too few for an interval"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ridge", default="build/release/bin/ridge")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--faster", type=int, default=20, help="than the lab, the machine is sampled")
    parser.add_argument("--slice-s", type=float, default=1.0)
    parser.add_argument("--watch-blocks", type=int, default=12)
    parser.add_argument("--trace-blocks", type=int, default=8)
    o = parser.parse_args()
    o.ridge = os.path.abspath(o.ridge)
    worst = 0.0
    seldom, often = cpu_of_a_sample(o, LAB_INTERVAL_MS, 5), cpu_of_a_sample(o, LAB_INTERVAL_MS // o.faster, 3)
    print(f"a sample of the machine takes {seldom:.2f} ms of CPU time at the lab's rate, {often:.2f} ms at {o.faster} times that: {seldom / LAB_INTERVAL_MS * 100:.2f} % and {often * o.faster / LAB_INTERVAL_MS * 100:.2f} % of one CPU", flush=True)
    on, same, disturbed = watch_blocks(o, o.watch_blocks, o.faster)
    print(f"time with / without (medians over blocks, 95 %); {disturbed} blocks of the first two rows were disturbed and left out")
    print(told(f"monitor, {o.faster} times as often", on) + "\n" + told("  A/A", same), flush=True)
    scale = max(1.0, seldom / often) / o.faster
    cost = interval(on) if on else None
    if cost and cost[2]:
        print(f"  at the lab's rate: {100 * (cost[0] - 1) * scale:+.2f} % ({100 * (cost[1] - 1) * scale:+.2f} to {100 * (cost[2] - 1) * scale:+.2f})")
        worst += max(0.0, (cost[2] - 1) * scale)
    else:
        worst = None
    on, same, took, disturbed = trace_blocks(o, o.trace_blocks)
    print(f"{disturbed} blocks of tracing were disturbed and left out")
    most = None
    for phase in on:
        print(told(f"ops of every step, {phase}", on[phase]) + "\n" + told("  A/A", same[phase]))
    cost = interval(on["decode"]) if on["decode"] else None
    if cost and cost[2]:
        most = max(0.0, (cost[2] - 1) / LAB_TRACE)
        print(f"  decoding at the lab's rate: {100 * (cost[0] - 1) / LAB_TRACE:+.3f} % (to {100 * most:.3f})")
        # A prompt is one step with as many ops, and timing them takes as long as in a step of decoding.
        prompt = max(0.0, cost[2] - 1) * statistics.median(took["decode"]) / 64 / statistics.median(took["prefill"])
        print(f"  a prompt of 128 tokens, every one traced, by the same time per step: at most {100 * prompt:.3f} %")
    if worst is not None and most is not None:
        print(f"decoding, both together, upper end of the intervals: {100 * (worst + most):.2f} %")
    else:
        print("too few quiet blocks for a verdict")


if __name__ == "__main__":
    main()
