#!/usr/bin/env python3
"""Runs every test of the tree and counts them by name: `./dev test [PATTERN]`.

Unit tests (release build), tests/python/*_test.py against the built program, layers and format, then the unit tests again under
ASan + UBSan, those of the engine under the thread sanitizer, and a minute of fuzzing. The last line is 'N passed, N failed, N skipped'; the status is not 0 if any failed.
Names of failed and skipped tests, with the reason, stand above it. Logs are in build/logs.
"""
import ast
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOGS = os.path.join(ROOT, "build", "logs")
VENV = os.path.join(ROOT, "build", "venv")
REQUIREMENTS = os.path.join(ROOT, "tests", "python", "requirements.txt")
JOBS = len(os.sched_getaffinity(0))
FUZZ_SECONDS = 60
PYTHON_FILE_LIMIT_S = 3600
SMALL_MODELS = ("smollm2:135m", "gemma3:270m")


class Report:
    """Results by test name. A failure carries text to print, a skip its reason."""

    def __init__(self):
        self.passed, self.failed, self.skipped = [], [], []

    def add(self, name, status, text=""):
        {"passed": self.passed, "failed": self.failed, "skipped": self.skipped}[status].append((name, text.strip()))

    def finish(self, seconds):
        for name, reason in self.skipped:
            print(f"skipped {name}: {last_line(reason) or 'no reason given'}")
        for name, text in self.failed:
            print(f"\nFAILED {name}\n{text}")
        if self.failed:
            print()
            for name, _ in self.failed:
                print(f"failed {name}")
        print(f"took {seconds:.0f} s")
        print(f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped", flush=True)
        return 1 if self.failed or not self.passed else 0


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def tail(text, lines=40):
    return "\n".join(text.splitlines()[-lines:])


def command(arguments, log, env=None, timeout=None):
    """Runs a program with its output in build/logs/LOG.log; returns (status, output)."""
    os.makedirs(LOGS, exist_ok=True)
    path = os.path.join(LOGS, log + ".log")
    with open(path, "w") as out:
        try:
            code = subprocess.run(arguments, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                  stderr=subprocess.STDOUT, timeout=timeout).returncode
        except subprocess.TimeoutExpired:
            code = 124
            out.write(f"\nstopped: longer than {timeout} s\n")
        except OSError as error:
            code = 127
            out.write(f"{error}\n")
    with open(path, errors="replace") as out:
        return code, out.read()


def build(report, preset, *targets):
    code, text = command(["./dev", "build", preset, *targets], f"test-build-{preset}")
    if code != 0:
        report.add(f"build.{preset}", "failed", tail(text))
    return code == 0


def unit_test_modules(pattern):
    """Modules of src that have a unit test whose name, MODULE.Suite.Case, may hold the pattern; each has a test program of its own."""
    case = re.compile(r"(?m)^(?:[A-Z]+_)*(?:TEST(?:_[FP])?|PROP(?:_FIXTURE)?)\(\s*(\w+),\s*(\w+)")
    found = set()
    for folder, _, files in os.walk(os.path.join(ROOT, "src")):
        module = os.path.relpath(folder, os.path.join(ROOT, "src")).split(os.sep)[0]
        for name in files:
            if name.endswith("_test.cc"):
                with open(os.path.join(folder, name)) as file:
                    text = file.read()
                # What a macro of the file's own or a list of parameters names is not seen here.
                hidden = re.search(r"#define(?:[^\n]*\\\n)*[^\n]*TEST", text) or ("/" in pattern and "INSTANTIATE_" in text)
                if hidden or any(pattern in f"{module}.{suite}.{test}" for suite, test in case.findall(text)):
                    found.add(module)
    return sorted(found)


def has_python_test(pattern):
    """Whether tests/python has a test whose name, FILE.Class.method, holds the pattern."""
    folder = os.path.join(ROOT, "tests", "python")
    for name in os.listdir(folder):
        if not name.endswith("_test.py"):
            continue
        with open(os.path.join(folder, name)) as file:
            tree = ast.parse(file.read())
        for outer in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            # A class may inherit its tests from another one of the file.
            methods = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test")}
            if any(pattern in f"{name[:-3]}.{outer.name}.{method}" for method in methods):
                return True
    return False


def simple(report, name, arguments):
    code, text = command(arguments, name)
    report.add(name, "passed" if code == 0 else "failed", "" if code == 0 else tail(text, 60))


def unit_tests(report, preset, pattern, module=None):
    """Each GoogleTest case is a ctest test; ctest's JUnit file carries names, results and output. module: only that one's, as others may not be built."""
    results = os.path.join(ROOT, "build", preset, "ctest.xml")
    if os.path.exists(results):
        os.remove(results)
    # GCC 12 aligns the heap frames of detect_stack_use_after_return to 32 bytes only: a spilled 512-bit vector would fault there.
    env = dict(os.environ, UBSAN_OPTIONS="print_stacktrace=1", ASAN_OPTIONS="detect_stack_use_after_return=0")
    arguments = steady_addresses(preset) + ["ctest", "--test-dir", f"build/{preset}", "-j", str(JOBS), "--output-junit", results, "--no-tests=error"]
    if pattern:
        arguments += ["-R", re.escape(pattern), "--no-tests=ignore", "-E", "_NOT_BUILT$"]
    elif module:
        arguments += ["-R", f"^{module}\\."]
    code, text = command(arguments, f"ctest-{preset}", env)
    if not os.path.exists(results):
        if not (pattern and code == 0):
            report.add(f"{preset}.ctest", "failed", tail(text))
        return
    failed = 0
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        name = f"{preset}.{case.get('name')}"
        output = case.findtext("system-out") or ""
        status = case.get("status")
        if status == "run" and case.find("failure") is None and case.find("error") is None:
            report.add(name, "passed")
        elif status in ("disabled", "notrun") or case.find("skipped") is not None:
            report.add(name, "skipped", skip_reason(output))
        else:
            failed += 1
            report.add(name, "failed", tail(output))
    if code != 0 and failed == 0:  # for instance a test program that could not list its tests
        report.add(f"{preset}.ctest", "failed", tail(text))


def steady_addresses(preset):
    """GCC 12's thread sanitizer does not start where the kernel spreads addresses over 32 bits (newer Debian and Ubuntu kernels)."""
    steady = ["setarch", "-R"]
    return steady if preset == "tsan" and subprocess.run([*steady, "true"], capture_output=True).returncode == 0 else []


def skip_reason(output):
    """GTEST_SKIP prints 'FILE:LINE: Skipped' and the reason in the lines after it."""
    found = re.search(r": Skipped\n(.*?)\n\[", output, re.S)
    return " ".join(found.group(1).split()) if found else ""


def make_venv():
    """A virtual environment with what results are compared with; without it those tests skip themselves by name."""
    python = os.path.join(VENV, "bin", "python3")
    stamp = os.path.join(VENV, "requirements.txt")
    with open(REQUIREMENTS) as file:
        wanted = file.read()
    if os.path.exists(stamp) and open(stamp).read() == wanted:
        return python
    code, text = command(["python3", "-m", "venv", VENV], "venv")
    if code == 0:
        code, text = command([python, "-m", "pip", "install", "-q", "-r", REQUIREMENTS], "venv")
    if code != 0:
        print(f"note: the Python packages of tests/python/requirements.txt could not be installed: {last_line(text)}")
        return python if os.path.exists(python) else sys.executable
    with open(stamp, "w") as file:
        file.write(wanted)
    return python


def real_models():
    """A folder with links to the small models that the store holds, under names that end in .gguf; empty without any."""
    folder = os.path.join(ROOT, "build", "test-models")
    os.makedirs(folder, exist_ok=True)
    for name in SMALL_MODELS:
        link = os.path.join(folder, name.replace(":", "-") + ".gguf")
        if os.path.islink(link):
            os.remove(link)
        shown = subprocess.run([os.path.join(ROOT, "build", "release", "bin", "ridge"), "show", name, "--json"], stdin=subprocess.DEVNULL,
                               capture_output=True, text=True)
        if shown.returncode == 0:
            os.symlink(json.loads(shown.stdout)["path"], link)
    return folder


def python_file(python, path, pattern):
    """One test file in a process of its own; returns [(name, status, text)]."""
    name = os.path.basename(path)[:-3]
    env = dict(os.environ, RIDGE_BIN=os.environ.get("RIDGE_BIN", os.path.join(ROOT, "build", "release", "bin", "ridge")))
    testdata = os.path.join(ROOT, "..", "shared", "testdata")
    if "RIDGE_TESTDATA" not in env and os.path.isdir(testdata):
        env["RIDGE_TESTDATA"] = os.path.abspath(testdata)
    models = os.path.join(ROOT, "build", "test-models")
    if "RIDGE_MODELS" not in env and os.path.isdir(models) and os.listdir(models):
        env["RIDGE_MODELS"] = models
    if "RIDGE_MODELS" in env:
        env.setdefault("RIDGE_MODELS_DIR", env["RIDGE_MODELS"])
    results = os.path.join(LOGS, f"python-{name}.json")
    if os.path.exists(results):
        os.remove(results)
    code, text = command([python, os.path.abspath(__file__), "--file", path, results, pattern], f"python-{name}", env,
                         PYTHON_FILE_LIMIT_S)
    rows = []
    if os.path.exists(results):
        with open(results) as file:
            rows = [tuple(row) for row in map(json.loads, file)]
    if code != 0 and not any(status == "failed" for _, status, _ in rows):
        rows.append((f"{name} (the whole file)", "failed", f"ended with {code}\n" + tail(text)))
    return [(f"python.{test}", status, detail) for test, status, detail in rows]


def python_tests(report, python, pattern):
    folder = os.path.join(ROOT, "tests", "python")
    files = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith("_test.py"))
    real_models()
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for rows in pool.map(lambda path: python_file(python, path, pattern), files):
            for row in rows:
                report.add(*row)


def run_one_file(path, results, pattern):
    """In the child: unittest, with one JSON line per test so that a crash loses nothing that ended before it."""
    import unittest
    name = os.path.basename(path)[:-3]
    sys.path.insert(0, os.path.dirname(path))
    out = open(results, "w", buffering=1)

    class Lines(unittest.TestResult):
        def line(self, test, status, text=""):
            short = test.id().removeprefix(name + ".")
            out.write(json.dumps([f"{name}.{short}", status, text]) + "\n")

        def addSuccess(self, test):
            super().addSuccess(test)
            if not self.broken_subtests.pop(test.id(), None):
                self.line(test, "passed")

        broken_subtests = {}

        def addSubTest(self, test, subtest, error):
            super().addSubTest(test, subtest, error)
            if error is not None:
                self.broken_subtests[test.id()] = True
                self.line(subtest, "failed", self._exc_info_to_string(error, test))

        def addFailure(self, test, error):
            super().addFailure(test, error)
            self.line(test, "failed", self.failures[-1][1])

        def addError(self, test, error):
            super().addError(test, error)
            self.line(test, "failed", self.errors[-1][1])

        def addSkip(self, test, reason):
            super().addSkip(test, reason)
            self.line(test, "skipped", reason)

        def addExpectedFailure(self, test, error):
            super().addExpectedFailure(test, error)
            self.line(test, "passed")

        def addUnexpectedSuccess(self, test):
            super().addUnexpectedSuccess(test)
            self.line(test, "failed", "passed, though it is marked as an expected failure")

    suite = unittest.TestSuite()

    def keep(tests):
        for test in tests:
            if isinstance(test, unittest.TestSuite):
                keep(test)
            elif pattern in test.id():
                suite.addTest(test)

    keep(unittest.defaultTestLoader.loadTestsFromName(name))
    result = Lines()
    suite.run(result)
    return 0 if result.wasSuccessful() else 1


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    begin = time.monotonic()
    report = Report()

    def step(text):
        print(f"[{time.monotonic() - begin:5.0f} s] {text}", flush=True)

    if not pattern:
        step("layers and format")
        simple(report, "layers", [sys.executable, "tools/check_layers.py"])
        simple(report, "layers.self_test", [sys.executable, "tools/check_layers.py", "--self-test"])
        simple(report, "format", [sys.executable, "tools/check_format.py"])
    # With a pattern: only what it needs, or all where no test is seen to have such a name.
    programs = [f"ridge_{module}_test" for module in unit_test_modules(pattern)] if pattern else []
    of_program = pattern != "" and has_python_test(pattern)
    if not programs and not of_program:
        programs, of_program = ["ridge_tests"], True
    if programs or of_program:
        targets = programs + ["ridge"] * of_program
        step(f"build (release{': ' + ' '.join(targets) if pattern else ''})")
        if build(report, "release", *targets):
            if programs:
                step("unit tests")
                unit_tests(report, "release", pattern)
            if of_program:
                step("tests of the program")
                python_tests(report, make_venv(), pattern)
    if programs:
        step("build (ASan + UBSan)")
        if build(report, "dev", *programs):
            step("unit tests (ASan + UBSan)")
            unit_tests(report, "dev", pattern)
    if not pattern:
        step("build (TSan)")
        if build(report, "tsan", "ridge_engine_test"):
            step("unit tests of the engine (TSan)")
            unit_tests(report, "tsan", pattern, "engine")
        step("build (fuzz)")
        if build(report, "fuzz"):
            step("fuzz")
            simple(report, "fuzz", [sys.executable, "tools/run_fuzz.py", "--total", str(FUZZ_SECONDS)])
    return report.finish(time.monotonic() - begin)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--file"]:
        sys.exit(run_one_file(*sys.argv[2:5]))
    sys.exit(main())
