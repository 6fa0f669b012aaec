"""`ridge lab`: an experiment on a tiny model, its evidence, the one-variable guard, resumption; llama-bench's output by a stand-in.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/lab_test.py
"""
import json
import os
import shutil
import stat
import subprocess
import tempfile
import unittest

try:
    from tiny_model import write_tiny_model
    MISSING = ""
except ImportError as error:
    MISSING = f"writes a model with the gguf package: {error}"

RIDGE = os.environ.get("RIDGE_BIN", "build/release/bin/ridge")
FAKE = """#!/bin/sh
# llama-bench as far as the lab needs it: {body}
ub=512; t=1; ngl=0
while [ $# -gt 0 ]; do case $1 in -ub) ub=$2;; -t) t=$2;; esac; shift; done
{extra}
echo "[{{\\"n_prompt\\": 8, \\"n_gen\\": 0, \\"n_threads\\": $t, \\"n_ubatch\\": $ub, \\"n_gpu_layers\\": $ngl, \\"avg_ts\\": 100.5}}]"
"""


def run(*args, status=0):
    done = subprocess.run([RIDGE, "lab", *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    if done.returncode != status:
        raise AssertionError(f"{args}: status {done.returncode}, {done.stderr.decode()}")
    return done


class Lab(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def experiment(self, variable, base="", head="", program=None):
        toml = f'[experiment]\nname = "test"\nblocks = 1\n{head}\n'
        if program:
            toml += f'subject = "llama-bench"\nprogram = "{program}"\n'
        toml += f"[base]\n{base}\n[variable]\n{variable}\n"
        with open(self.path("e.toml"), "w", encoding="utf-8") as file:
            file.write(toml)
        return self.path("e.toml")

    def fake(self, extra=""):
        path = self.path("llama-bench")
        with open(path, "w", encoding="utf-8") as file:
            file.write(FAKE.format(body="one row", extra=extra))
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path

    @unittest.skipIf(MISSING, MISSING)
    def test_an_experiment_leaves_evidence_that_can_be_checked(self):
        model = self.path("tiny.gguf")
        write_tiny_model(model)
        toml = self.experiment('flag = "ub"\nvalues = [8, 16]', f'm = "{model}"\np = 16\nn = 0\nt = 1\nb = 16')
        document = json.loads(run("run", toml, "--json").stdout)
        self.assertEqual([f["verdict"] for f in document["findings"]][:2], ["reference", "A/A"])
        self.assertIn("undetermined", document["findings"][2]["verdict"])  # one block says nothing
        self.assertEqual(document["findings"][2]["test"], "pp16")
        self.assertEqual(document["samples"], 6)
        bundle = self.path("e.lab")
        names = sorted(os.path.relpath(os.path.join(d, f), bundle) for d, _, files in os.walk(bundle) for f in files)
        self.assertEqual(len([n for n in names if n.startswith("runs/") and n.endswith(".log")]), 6)
        for name in ("experiment.toml", "environment.json", "samples.csv", "MANIFEST"):
            self.assertIn(name, names)
        self.assertIn("as they were sealed", run("check", bundle).stdout.decode())
        report = run("report", bundle).stdout.decode()
        self.assertIn("| 硬件 | 模型 | 变量 |", report)
        self.assertIn("A/A", report)
        self.assertIn("not judged", report)
        self.assertEqual(report, run("report", bundle).stdout.decode())
        for name in names:  # a flipped byte anywhere is found
            file = os.path.join(bundle, name)
            with open(file, "rb") as f:
                data = f.read()
            if not data:
                continue
            at = len(data) // 2
            with open(file, "wb") as f:
                f.write(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
            run("check", bundle, status=1)
            with open(file, "wb") as f:
                f.write(data)
        run("check", bundle)
        os.remove(os.path.join(bundle, "runs", "0002.log"))
        self.assertIn("is missing", run("check", bundle, status=1).stderr.decode())
        with open(os.path.join(bundle, "new"), "w", encoding="utf-8") as f:
            f.write("x")
        self.assertIn("not in the manifest", run("check", bundle, status=1).stderr.decode())

    def test_samples_are_derived_anew(self):
        bundle = self.path("e.lab")
        run("run", self.experiment('flag = "t"\nvalues = [1, 2]', program=self.fake()))
        # Changed and sealed again with right checksums: the table still does not follow from the raw runs.
        with open(os.path.join(bundle, "samples.csv"), encoding="utf-8") as f:
            text = f.read()
        self.assertIn("100.5", text)
        with open(os.path.join(bundle, "samples.csv"), "w", encoding="utf-8") as f:
            f.write(text.replace("100.5", "200.5", 1))
        self.assertIn("does not follow from the raw runs", run("check", bundle, status=1).stderr.decode())

    def test_what_moves_more_than_the_variable_is_refused(self):
        toml = self.experiment('flag = "t"\nvalues = [1, 2]', program=self.fake("if [ $t = 2 ]; then ub=256; fi"))
        err = run("run", toml, status=1).stderr.decode()
        self.assertIn("more than the one variable moved: n_ubatch", err)
        shutil.rmtree(self.path("e.lab"))
        toml = self.experiment('flag = "ngl"\nvalues = [0, 99]', program=self.fake())
        self.assertIn("the variable did not move: ngl", run("run", toml, status=1).stderr.decode())

    def test_an_interrupted_experiment_goes_on(self):
        count = self.path("count")
        program = self.fake(f'echo x >> "{count}"; if [ $(wc -l < "{count}") = 4 ]; then echo "fails once" >&2; exit 3; fi')
        toml = self.experiment('flag = "t"\nvalues = [1, 2]', program=program)
        self.assertIn("status 3: fails once", run("run", toml, status=1).stderr.decode())
        run("run", toml)
        with open(count, encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 7)  # 6 runs, one of them twice
        run("run", toml)
        with open(count, encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 7)
        run("check", self.path("e.lab"))
        with open(toml, "a", encoding="utf-8") as file:
            file.write("# changed\n")
        self.assertIn("another experiment", run("run", toml, status=1).stderr.decode())

    def test_bad_experiments_are_refused(self):
        self.assertIn("line 6", run("run", self.experiment('flag = "t"\nvalues = [1, 2]', "m = tiny"), status=1).stderr.decode())
        self.assertIn("cannot open", run("run", self.path("none.toml"), status=1).stderr.decode())
        self.assertIn("ACTION", run("walk", "x", status=2).stderr.decode())
        self.assertIn("no evidence", run("check", self.path("none"), status=1).stderr.decode())
        for action in ("run", "check", "report"):
            self.assertIn("the value is empty: TARGET", run(action, "", status=2).stderr.decode())
        self.assertIn("a directory", run("run", self.folder, status=1).stderr.decode())
        os.mkfifo(self.path("pipe.toml"))
        self.assertIn("a pipe", run("run", self.path("pipe.toml"), status=1).stderr.decode())
        self.assertIn("a device", run("run", "/dev/zero", status=1).stderr.decode())
        toml = self.experiment('flag = "t"\nvalues = [1, 2]', program=self.path("absent"))
        self.assertIn("cannot start", run("run", toml, status=1).stderr.decode())


if __name__ == "__main__":
    unittest.main()
