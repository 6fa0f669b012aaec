#!/usr/bin/env python3
"""Every C++ file is as clang-format 19 writes it. `--fix` rewrites those that are not."""
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def sources():
    """C++ files of the tree: tracked or new, not ignored."""
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard", "*.cc", "*.h"], cwd=ROOT, check=True,
                            stdout=subprocess.PIPE).stdout.decode().split("\0")
    return sorted({name for name in listed if name and os.path.exists(os.path.join(ROOT, name))})


def main(arguments):
    tool = shutil.which("clang-format-19")
    if tool is None:
        print("clang-format-19 is not installed; ./dev check installs it")
        return 1
    files = sources()
    if arguments == ["--fix"]:
        return subprocess.run([tool, "-i", *files], cwd=ROOT).returncode
    run = subprocess.run([tool, "--dry-run", "-Werror", *files], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wrong = sorted({line.split(":")[0] for line in run.stdout.splitlines() if "[-Wclang-format-violations]" in line})
    for name in wrong:
        print(f"{name}: not formatted; run ./dev check --fix")
    if run.returncode != 0 and not wrong:
        print(run.stdout)
    print(f"format: {len(files)} files, {len(wrong)} not formatted")
    return 1 if wrong or run.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
