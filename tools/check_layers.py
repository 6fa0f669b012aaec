#!/usr/bin/env python3
"""Proves the include rules of docs/ARCHITECTURE.md, section 1, from the sources and from src/CMakeLists.txt.

  A module includes only itself and modules of a lower rank; modules of one rank know nothing of each other; nobody includes lab;
  nobody in src/ includes apps, tests, bench, fuzz. What a module includes it names in its DEPS, and it names nothing that it does
  not include. The public headers, include/ridge, are service's: they include the standard library, each other and, in result.h, base/result.h,
  which is installed in its place; nobody else in src/ includes them. Files of src/backend/cpu/kernels are compiled with -m flags of one ISA each: an inline function of a common header
  would be compiled there for that ISA, and the linker might keep that copy for all callers, so these files include next to nothing.

`--self-test` breaks each rule in a scratch tree and sees it reported.
"""
import os
import re
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RANKS = {
    "base": 0, "quant": 1, "cache": 1, "gguf": 2, "graph": 2, "backend": 3, "text": 3, "model": 4, "sampling": 4,
    "engine": 5, "service": 6, "server": 7, "hub": 7, "lab": 7,
}
LEAVES = ("apps", "tests", "bench", "fuzz", "tools", "examples", "web")
KERNELS = "backend/cpu/kernels/"
PUBLIC, PUBLIC_OWNER = "ridge/", "service"
PUBLIC_FROM_SRC = {("include/ridge/result.h", "base/result.h")}
KERNEL_SYSTEM = {
    "immintrin.h", "arm_neon.h", "stdint.h", "cstdint", "string.h", "cstring", "math.h", "cmath", "stddef.h", "cstddef",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.M)
MODULE = re.compile(r"^\s*ridge_module\(\s*(\w+)([^)]*)\)", re.M)


def includes(path):
    """(line number, name, quoted) of each include."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    return [(text.count("\n", 0, m.start()) + 1, m.group(1) or m.group(2), m.group(1) is not None) for m in INCLUDE.finditer(text)]


def module_of(name):
    """Module that an include path such as 'gguf/reader.h' belongs to, or None."""
    first = name.split("/")[0]
    return first if "/" in name and first in RANKS else None


def declared(root):
    """module → DEPS of src/CMakeLists.txt."""
    with open(os.path.join(root, "src", "CMakeLists.txt"), encoding="utf-8") as file:
        text = re.sub(r"#.*", "", file.read())
    deps = {}
    for match in MODULE.finditer(text):
        words = match.group(2).split()
        deps[match.group(1)] = set()
        keyword = None
        for word in words:
            if word in ("DEPS", "LIBS"):
                keyword = word
            elif keyword == "DEPS":
                deps[match.group(1)].add(word)
    return deps


def sources(root, top):
    for folder, _, names in os.walk(os.path.join(root, top)):
        for name in sorted(names):
            if name.endswith((".cc", ".h", ".inc", ".c")):
                yield os.path.relpath(os.path.join(folder, name), root)


def is_test(path):
    return path.endswith("_test.cc")


def check_public(path, line, name, quoted):
    """A header that is installed: it may need nothing that is not."""
    if not quoted and "/" not in name or quoted and name.startswith(PUBLIC) or (path, name) in PUBLIC_FROM_SRC:
        return None
    return f"{path}:{line}: {name} in a public header; allowed: the standard library and include/ridge"


def check_kernel(path, line, name, quoted, root):
    """A file that is compiled for one ISA."""
    if not quoted:
        return None if name in KERNEL_SYSTEM else f"{path}:{line}: <{name}> in a file compiled for one ISA; allowed: {' '.join(sorted(KERNEL_SYSTEM))}"
    beside = os.path.join(os.path.dirname(path), name)
    if name.startswith(KERNELS) or ("/" not in name and os.path.exists(os.path.join(root, beside))):
        return None
    return f"{path}:{line}: \"{name}\" in a file compiled for one ISA; allowed: headers of src/{KERNELS}"


def check(root):
    """All violations, as lines of text."""
    wrong = []
    deps = declared(root)
    for module, names in sorted(deps.items()):
        if module not in RANKS:
            wrong.append(f"src/CMakeLists.txt: module {module} has no rank; add it to docs/ARCHITECTURE.md and to tools/check_layers.py")
            continue
        for name in sorted(names):
            if RANKS.get(name, 99) >= RANKS[module]:
                wrong.append(f"src/CMakeLists.txt: {module} (rank {RANKS[module]}) names {name} (rank {RANKS.get(name)}) in DEPS; only lower ranks")
    used = {module: set() for module in RANKS}
    have_code = set()
    for path in sources(root, "src"):
        parts = path.split("/")
        owner = parts[1] if len(parts) > 2 else None
        if owner not in RANKS:
            wrong.append(f"{path}: not in a module; modules are {' '.join(RANKS)}")
            continue
        have_code.add(owner)
        kernel = path.startswith("src/" + KERNELS) and not is_test(path)
        for line, name, quoted in includes(os.path.join(root, path)):
            if kernel:
                wrong.append(check_kernel(path, line, name, quoted, root))
                continue
            first = name.split("/")[0]
            target = module_of(name)
            if name.startswith(PUBLIC):
                if owner != PUBLIC_OWNER:
                    wrong.append(f"{path}:{line}: includes {name}; only {PUBLIC_OWNER} knows the public headers")
                elif not os.path.exists(os.path.join(root, "include", name)):
                    wrong.append(f"{path}:{line}: \"{name}\" does not exist")
            elif first in LEAVES and "/" in name and os.path.isdir(os.path.join(root, first)):
                wrong.append(f"{path}:{line}: includes {name}; src/ knows nothing of {first}/")
            elif target is None:
                if quoted:
                    wrong.append(f"{path}:{line}: \"{name}\" is not a path below src/ such as \"base/result.h\"")
            elif not os.path.exists(os.path.join(root, "src", name)):
                if quoted:
                    wrong.append(f"{path}:{line}: \"{name}\" does not exist")
            elif target != owner:
                used[owner].add(target)
                if target == "lab":
                    wrong.append(f"{path}:{line}: includes {name}; nobody includes lab")
                elif RANKS[target] >= RANKS[owner]:
                    wrong.append(f"{path}:{line}: {owner} (rank {RANKS[owner]}) includes {name} (rank {RANKS[target]}); only lower ranks")
                elif target not in deps.get(owner, set()):
                    wrong.append(f"{path}:{line}: {owner} includes {name}, but its DEPS in src/CMakeLists.txt do not name {target}")
    for module in sorted(have_code & set(deps)):
        for name in sorted(deps[module] - used[module]):
            wrong.append(f"src/CMakeLists.txt: {module} names {name} in DEPS and includes nothing of it")
    for module in sorted(have_code - set(deps)):
        wrong.append(f"src/{module}: has code and no ridge_module line in src/CMakeLists.txt")
    for path in sources(root, "include"):
        wrong += [check_public(path, line, name, quoted) for line, name, quoted in includes(os.path.join(root, path))]
    for top in LEAVES:
        for path in sources(root, top):
            for line, name, _ in includes(os.path.join(root, path)):
                if module_of(name) == "lab" and top not in ("apps", "tests"):
                    wrong.append(f"{path}:{line}: includes {name}; nobody includes lab")
    return [line for line in wrong if line]


def self_test():
    """Each rule broken once; the good tree first."""
    good = {
        "src/CMakeLists.txt": "ridge_module(base)\nridge_module(quant DEPS base)\nridge_module(cache DEPS base)\n"
                              "ridge_module(gguf DEPS base quant LIBS z)\nridge_module(graph DEPS base)\nridge_module(backend DEPS base graph)\n"
                              "ridge_module(lab DEPS base)\nridge_module(service DEPS base)\nridge_module(server DEPS base)\n",
        "include/ridge/ridge.h": '#include <string>\n#include "ridge/result.h"\n',
        "include/ridge/result.h": '#include "base/result.h"\n',
        "src/service/api.cc": '#include "ridge/ridge.h"\n#include "base/a.h"\n',
        "src/base/a.h": "#include <string>\n",
        "src/quant/q.cc": '#include "base/a.h"\n',
        "src/cache/c.h": '#include "base/a.h"\n',
        "src/gguf/g.cc": '#include <vector>\n#include "base/a.h"\n#include "quant/q.h"\n',
        "src/quant/q.h": "",
        "src/graph/x.cc": '#include "base/a.h"\n',
        "src/backend/b.cc": '#include "base/a.h"\n#include "graph/x.h"\n#include "backend/cpu/kernels/k.h"\n',
        "src/graph/x.h": "",
        "src/backend/cpu/kernels/k.h": "#include <stddef.h>\n",
        "src/backend/cpu/kernels/k.cc": '#include <immintrin.h>\n#include "backend/cpu/kernels/k.h"\n#include "k.h"\n',
        "src/backend/cpu/kernels/k_test.cc": '#include <vector>\n#include "base/a.h"\n#include "backend/cpu/kernels/k.h"\n',
        "src/lab/l.h": '#include "base/a.h"\n',
        "src/server/s.cc": '#include "base/a.h"\n',
        "apps/ridge/main.cc": '#include "lab/l.h"\n#include "base/a.h"\n',
    }
    bad = {
        "a public header that needs one of src": ("include/ridge/ridge.h", '#include "base/a.h"\n', {}, "in a public header"),
        "a public header that needs a package": ("include/ridge/ridge.h", "#include <fmt/format.h>\n", {}, "in a public header"),
        "a public header inside": ("src/server/s.cc", '#include "base/a.h"\n#include "ridge/ridge.h"\n', {}, "only service knows"),
        "a public header that is not there": ("src/service/api.cc", '#include "base/a.h"\n#include "ridge/none.h"\n', {}, "does not exist"),
        "a higher rank": ("src/base/b.cc", '#include "gguf/g.h"\n', {"src/gguf/g.h": ""}, "only lower ranks"),
        "the same rank": ("src/quant/q.cc", '#include "base/a.h"\n#include "cache/c.h"\n', {}, "only lower ranks"),
        "lab": ("src/server/s.cc", '#include "base/a.h"\n#include "lab/l.h"\n', {}, "nobody includes lab"),
        "lab from bench": ("bench/b.cc", '#include "lab/l.h"\n', {}, "nobody includes lab"),
        "a leaf": ("src/base/b.cc", '#include "apps/ridge/main.h"\n', {}, "knows nothing of apps"),
        "no DEPS": ("src/graph/x.cc", '#include "base/a.h"\n#include "quant/q.h"\n', {}, "DEPS in src/CMakeLists.txt do not name quant"),
        "idle DEPS": ("src/graph/x.cc", "\n", {}, "includes nothing of it"),
        "DEPS upwards": ("src/CMakeLists.txt", good["src/CMakeLists.txt"].replace("quant DEPS base", "quant DEPS base gguf"), {}, "only lower ranks"),
        "a relative include": ("src/base/b.cc", '#include "a.h"\n', {}, "is not a path below src/"),
        "angle brackets do not hide": ("src/base/b.cc", "#include <quant/q.h>\n", {}, "only lower ranks"),
        "spaces do not hide": ("src/base/b.cc", '  #  include   "quant/q.h"\n', {}, "only lower ranks"),
        "an unknown module": ("src/misc/m.cc", "\n", {}, "not in a module"),
        "a module without a target": ("src/hub/h.cc", "\n", {}, "no ridge_module line"),
        "a common header in a kernel": ("src/backend/cpu/kernels/k.cc", '#include "base/a.h"\n', {}, "compiled for one ISA"),
        "a common header in a kernel's header": ("src/backend/cpu/kernels/k.h", '#include "base/a.h"\n', {}, "compiled for one ISA"),
        "the standard library in a kernel": ("src/backend/cpu/kernels/k.cc", "#include <algorithm>\n", {}, "compiled for one ISA"),
        "another folder's header in a kernel": ("src/backend/cpu/kernels/k.cc", '#include "backend/cpu/p.h"\n', {"src/backend/cpu/p.h": ""}, "compiled for one ISA"),
    }

    def run(tree):
        with tempfile.TemporaryDirectory() as root:
            for path, text in tree.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            os.makedirs(os.path.join(root, "apps"), exist_ok=True)
            return check(root)

    failed = []
    if found := run(good):
        failed.append(f"the good tree is refused: {found}")
    for name, (path, text, more, expected) in bad.items():
        found = run({**good, **more, path: text})
        if not any(expected in line for line in found):
            failed.append(f"{name}: not reported; reported: {found}")
    for line in failed:
        print(line)
    print(f"layers: self-test of {len(bad)} violations, {len(failed)} wrong")
    return 1 if failed else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    wrong = check(ROOT)
    for line in wrong:
        print(line)
    print(f"layers: {sum(1 for _ in sources(ROOT, 'src'))} files, {len(wrong)} violations")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
