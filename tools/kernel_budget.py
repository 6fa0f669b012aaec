#!/usr/bin/env python3
"""Counts the instructions of the matrix kernels' inner loops: the budget in docs/kernels.md.

  ./dev build release && ./dev build arm64 && python3 tools/kernel_budget.py [KIND…]

A loop is what lies between a backward branch and its target; of each function the innermost loops with dot products are printed, the
largest per tile. Stack: instructions that touch the frame, most of them spills. Needs objdump, for Arm aarch64-linux-gnu-objdump.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGETS = (  # object, dot product, objdump, build
    ("avx2", "vpmaddubsw", "objdump", "release"), ("avxvnni", "vpdpbusd", "objdump", "release"), ("avx512", "vpdpbusd", "objdump", "release"),
    ("neon", "sdot", "aarch64-linux-gnu-objdump", "arm64"), ("neon_i8mm", "usdot", "aarch64-linux-gnu-objdump", "arm64"),
)
BRANCH = re.compile(r"^(j\w+|b|b\.\w+|cbn?z|tbn?z)$")
STACK = re.compile(r"%rsp|%rbp|\[sp\b|\[x29\b")


def kinds():
    with open(os.path.join(ROOT, "src/backend/cpu/kernels/panels.h"), encoding="utf-8") as file:
        body = re.search(r"enum class PanelKind : int \{(.*?)\}", file.read(), re.S).group(1)
    return re.findall(r"\bk(\w+)\b", re.sub(r"//[^\n]*", "", body))


def functions(path, objdump):
    """(name, [(address, mnemonic, text)])"""
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
    for name, body in re.findall(r"^[0-9a-f]+ <([^\n]*)>:\n(.*?)(?=\n\n|\Z)", text, re.S | re.M):
        code = []
        for line in body.splitlines():
            address, _, rest = line.strip().partition("\t")
            rest = " ".join(rest.split()).removeprefix("{vex} ").removeprefix("{evex} ")
            if rest:
                code.append((int(address.rstrip(":"), 16), rest.split()[0], rest))
        yield name, code


def inner_loops(code, dot):
    at = {address: i for i, (address, _, _) in enumerate(code)}
    loops = set()
    for i, (address, mnemonic, text) in enumerate(code):
        target = re.search(r"\b([0-9a-f]+) <", text)
        if BRANCH.match(mnemonic) and target and int(target.group(1), 16) <= address and int(target.group(1), 16) in at:
            loops.add((at[int(target.group(1), 16)], i))

    def dots(begin, end):
        return sum(mnemonic == dot for _, mnemonic, _ in code[begin:end + 1])

    for begin, end in loops:
        inner = [(b, e) for b, e in loops if b >= begin and e <= end and (b, e) != (begin, end)]
        if dots(begin, end) >= 8 and not any(dots(b, e) >= 8 for b, e in inner):
            yield end - begin + 1, dots(begin, end), sum(bool(STACK.search(text)) for _, _, text in code[begin:end + 1])


def main(wanted):
    names = kinds()
    print("| target | type | instructions a loop | dot products in it | instructions a dot product | of them on the stack |\n|---|---|---|---|---|---|")
    for target, dot, objdump, build in TARGETS:
        path = os.path.join(ROOT, "build", build, f"src/CMakeFiles/ridge_backend.dir/backend/cpu/kernels/target_{target}.cc.o")
        if not os.path.exists(path):
            print(f"no {path}: ./dev build {build}", file=sys.stderr)
            continue
        code = list(functions(path, objdump))
        for kind in wanted:
            tag = re.compile(rf"PanelKind\){names.index(kind)}\b")
            found = [loop for name, body in code if tag.search(name) for loop in inner_loops(body, dot)]
            if not found:
                print(f"no loop of {kind} in {path}", file=sys.stderr)
                continue
            length, dots, stack = max(found, key=lambda loop: (loop[1], -loop[0]))
            print(f"| `{target.replace('_', '-')}` | {kind} | {length} | {dots} `{dot}` | {length / dots:.2f} | {stack} |")


if __name__ == "__main__":
    main(sys.argv[1:] or ["Q4_K", "Q8_0"])
