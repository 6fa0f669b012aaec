#!/usr/bin/env python3
"""clang-tidy over the C++ sources of the release build: `run_tidy.py [FILE…]`; without FILE all of src/ and apps/, tests left out.

A file that was clean is not looked at again until it, a header of ours that it includes, or .clang-tidy changes: build/tidy/ holds
a stamp of what was clean. Needs a configured and built build/release (for compile_commands.json and ninja's list of headers).
"""
import concurrent.futures
import hashlib
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build", "release")
STAMPS = os.path.join(ROOT, "build", "tidy")


def headers_of_objects():
    """object → files of ours that it was built from, as ninja remembers them."""
    text = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], stdout=subprocess.PIPE, text=True, check=True).stdout
    found, target = {}, None
    for line in text.splitlines():
        if line and not line[0].isspace() and ": #deps" in line:
            target = line.split(": #deps")[0]
            found[target] = set()
        elif line.startswith("    ") and target:
            path = os.path.normpath(os.path.join(BUILD, line.strip()))
            if path.startswith(ROOT + os.sep):
                found[target].add(path)
    return found


def digest(paths):
    total = hashlib.sha256()
    for path in sorted(paths):
        if os.path.exists(path):
            with open(path, "rb") as file:
                total.update(path.encode() + b"\0" + hashlib.sha256(file.read()).digest())
    return total.hexdigest()


def main(arguments):
    tool = shutil.which("clang-tidy-19")
    if tool is None:
        print("clang-tidy-19 is not installed; ./dev check installs it")
        return 1
    with open(os.path.join(BUILD, "compile_commands.json")) as file:
        commands = json.load(file)
    objects = headers_of_objects()
    wanted = {os.path.abspath(name) for name in arguments}
    todo, clean = {}, 0
    for command in commands:
        path = command["file"]
        inside = path.startswith((os.path.join(ROOT, "src"), os.path.join(ROOT, "apps")))
        if path.endswith("_test.cc") or not (path in wanted if wanted else inside):
            continue
        needs = objects.get(command.get("output", ""), set()) | {path, os.path.join(ROOT, ".clang-tidy")}
        key = digest(needs) + hashlib.sha256(command["command"].encode()).hexdigest()
        stamp = os.path.join(STAMPS, hashlib.sha256(path.encode()).hexdigest()[:24])
        if os.path.exists(stamp) and open(stamp).read() == key:
            clean += 1
        else:
            todo[path] = (stamp, key)
    os.makedirs(STAMPS, exist_ok=True)

    def tidy(item):
        path, (stamp, key) = item
        run = subprocess.run([tool, "-p", BUILD, "--quiet", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode == 0:
            with open(stamp, "w") as file:
                file.write(key)
            return ""
        return run.stdout

    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for path, text in zip(todo, pool.map(tidy, todo.items())):
            if text:
                wrong += 1
                print("\n".join(line for line in text.splitlines() if "warnings generated" not in line and "Suppressed" not in line))
                print(f"{os.path.relpath(path, ROOT)}: clang-tidy found faults")
    print(f"tidy: {len(todo)} files looked at, {clean} unchanged since they were clean, {wrong} with faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
