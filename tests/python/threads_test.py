"""-t, --cpu-mask, --cpu-range and --numa from outside: every command resolves the same, says why, and refuses by name.

RIDGE_BIN names the program. Runs on a tiny random model (needs the gguf package).
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import tiny_model
    MISSING = ""
except ImportError as error:
    tiny_model, MISSING = None, f"needs the Python package {error.name}"

RIDGE = os.environ.get("RIDGE_BIN", os.path.abspath("build/release/bin/ridge"))
ALLOWED = sorted(os.sched_getaffinity(0))


@unittest.skipIf(tiny_model is None, MISSING)
class Threads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.model = os.path.join(cls.folder, "model.gguf")
        tiny_model.write_tiny_model(cls.model)

    def ridge(self, command, *arguments):
        model = [] if command == "doctor" else ["-m", self.model]
        return subprocess.run([RIDGE, command, *model, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)

    def config(self, *arguments):
        run = self.ridge("run", "-p", "a", "-n", "1", "--temp", "0", "--json", *arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)["config"]

    def test_one_cpu_resolves_alike_in_every_command(self):
        mask = ["--cpu-mask", hex(1 << ALLOWED[-1])]
        config = self.config(*mask)
        self.assertEqual((config["n_threads"], config["cpus"], config["cpus_reason"]), (1, str(ALLOWED[-1]), "--cpu-mask"))
        rows = json.loads(self.ridge("bench", "-p", "4", "-n", "0", "-r", "1", "-o", "json", *mask).stdout)
        self.assertEqual(rows[0]["n_threads"], 1)

        def pin():
            os.sched_setaffinity(0, {ALLOWED[-1]})
        for command, arguments, path in (("doctor", [], ["threads"]), ("run", ["-p", "a", "-n", "1"], ["config", "n_threads"])):
            model = [] if command == "doctor" else ["-m", self.model]
            run = subprocess.run([RIDGE, command, *model, *arguments, "--json"], capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL, timeout=120, preexec_fn=pin)
            found = json.loads(run.stdout)
            for key in path:
                found = found[key]
            self.assertEqual(found, 1, command)

    def test_the_choice_comes_with_its_reason(self):
        self.assertIn("asked for", self.config("-t", "1")["n_threads_reason"])
        chosen = self.config()["n_threads_reason"]
        self.assertTrue("probe" in chosen or len(ALLOWED) == 1 or chosen.startswith("1 physical core"), chosen)

    def test_placement_changes_no_bit(self):
        hashes = set()
        for arguments in ([], ["--cpu-range", f"{ALLOWED[0]}-{ALLOWED[0]}"], ["-t", "3"], ["--numa", "distribute"], ["--numa", "isolate"]):
            run = self.ridge("logits", "--ids", "1,2,3", "--json", *arguments)
            self.assertEqual(run.returncode, 0, run.stderr)
            hashes.add(json.loads(run.stdout)["hash"])
        self.assertEqual(len(hashes), 1)

    def test_numa_says_what_it_does(self):
        config = self.config("--numa", "distribute")
        self.assertEqual(config["numa"], "distribute")
        nodes = [n for n in os.listdir("/sys/devices/system/node") if n.startswith("node")] if os.path.isdir("/sys/devices/system/node") else []
        if len(nodes) < 2:
            self.assertIn("changes nothing", config["numa_reason"])
        self.assertEqual(self.config()["numa"], "off")

    def test_wrong_values_are_refused_by_name(self):
        for arguments, status, says in ((["--cpu-mask", "xyz"], 2, "--cpu-mask"), (["--cpu-mask", "0"], 2, "--cpu-mask"),
                                        (["--cpu-range", "5"], 2, "--cpu-range"), (["--cpu-range", "3-1"], 2, "--cpu-range"),
                                        (["--cpu-mask", "1", "--cpu-range", "0-0"], 2, "exclude"), (["--numa", "yes"], 2, "--numa"),
                                        (["--cpu-range", "60000-60001"], 2, "CPU 60000"), (["-t", "-1"], 2, "-t")):
            run = self.ridge("logits", "--ids", "1,2", *arguments)
            self.assertEqual(run.returncode, status, (arguments, run.stderr))
            self.assertEqual(len(run.stderr.splitlines()), 1, run.stderr)
            self.assertIn(says, run.stderr)


if __name__ == "__main__":
    unittest.main()
