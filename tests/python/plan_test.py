"""`ridge plan`, `ridge tune` and the profiles, and what `ridge doctor` checks, from outside. No speed is asserted."""
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


def ridge(*arguments, **env):
    return subprocess.run([RIDGE, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=300, env={**os.environ, **env})


def document(*arguments, **env):
    run = ridge(*arguments, "--json", **env)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


class Plan(unittest.TestCase):
    def test_what_fits_follows_from_the_budget(self):
        small, large = (document("plan", "--memory", m, "--context", "4096") for m in ("2GB", "64GB"))
        for d in (small, large):
            usable = d["device"]["memory_bytes"] - d["device"]["reserve_bytes"]
            self.assertGreaterEqual(len(d["candidates"]), 200)
            for c in d["candidates"]:
                self.assertEqual(c["fits"], c["total_bytes"] <= usable)
                self.assertLessEqual(c["weights_bytes"] + c["kv_bytes"] + c["workspace_bytes"], c["total_bytes"])
        self.assertGreater(large["recommended"]["parameters"], 5 * small["recommended"]["parameters"])
        more = document("plan", "--memory", "64GB", "--context", "4096", "--concurrency", "8")
        pick = lambda d: next(c for c in d["candidates"] if (c["model"], c["format"]) == ("Qwen3 8B", "Q4_K_M"))
        self.assertEqual(pick(more)["kv_bytes"], 8 * pick(large)["kv_bytes"])
        self.assertEqual([r["scenario"] for r in more["runtimes"] if r["chosen"]], ["concurrent"])

    def test_tasks(self):
        for task, least, kv in (("math", "Q6_K", "f16"), ("code", "Q5_K_M", "f16"), ("rag", "Q4_K_M", "q8_0")):
            d = document("plan", "--memory", "16GB", "--task", task)
            self.assertEqual((d["task"]["least_format"], d["type_kv"]), (least, kv))
            self.assertTrue(d["task"]["reason"])
        self.assertEqual(document("plan", "--memory", "16GB", "--task", "rag", "-ctk", "f16")["type_kv"], "f16")

    def test_a_recorded_device(self):
        with tempfile.TemporaryDirectory() as folder:
            empty = {"XDG_CACHE_HOME": folder}
            d = document("plan", "--memory", "16GB", **empty)
            self.assertIsNone(d["device"]["roofline"])
            self.assertIn("ridge roofline", d["device"]["roofline_reason"])
            self.assertIsNone(d["candidates"][0]["decode_ts"])
            path = os.path.join(folder, "device.json")
            roofline = document("roofline", "--short", **empty)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(roofline, file)
            d = document("plan", "--device", path, **empty)
            self.assertEqual(d["device"]["roofline"], roofline["fingerprint"])
            speed = d["candidates"][0]["decode_ts"]
            self.assertTrue(0 < speed["low"] < speed["expected"] < speed["high"])
            with open(path, "w", encoding="utf-8") as file:
                file.write("{}")
            self.assertEqual(ridge("plan", "--device", path).returncode, 1)

    def test_wrong_command_lines(self):
        for arguments in (["--task", "poetry"], ["--memory", "much"], ["--context", "0"], ["--concurrency", "-1"], ["-ctk", "q9"]):
            self.assertEqual(ridge("plan", *arguments).returncode, 2, arguments)
        self.assertEqual(ridge("plan", "--device", "/no/such/file").returncode, 1)


@unittest.skipIf(MISSING, MISSING)
class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.model, cls.other = (os.path.join(cls.folder, n) for n in ("tiny.gguf", "other.gguf"))
        tiny_model.write_tiny_model(cls.model, context=2048)
        tiny_model.write_tiny_model(cls.other, context=2048, seed=2)
        cls.profile = os.path.join(cls.folder, "profile.json")
        cls.tuned = document("tune", "-m", cls.model, "-p", "64", "-o", cls.profile)

    def test_a_file_is_planned_as_it_is_loaded(self):
        plan = document("plan", "-m", self.model, "--context", "512", "-t", "1")["file"]
        memory = document("inspect", self.model, "--memory", "-c", "512", "-t", "1")["memory"]
        self.assertEqual(plan["weights_bytes"], memory["weights_bytes"])
        self.assertEqual(plan["kv_bytes"], memory["kv_bytes"])
        self.assertEqual(plan["total_bytes"], memory["peak_bytes"])

    def test_no_winner_without_proof(self):
        e = self.tuned["evidence"]
        self.assertEqual({s["setting"] for s in e["searched"]}, {"n_threads", "n_ubatch"})
        for s in e["searched"]:
            states = {v["value"]: v for v in s["values"]}
            self.assertEqual(states[s["present"]]["state"], "present")
            if s["chosen"] != s["present"]:
                self.assertLess(states[s["chosen"]]["ratio_high"], 0.98)
            for v in s["values"]:
                if v["state"] == "faster":
                    self.assertLess(v["ratio_high"], 0.98)
                if v["state"] == "slower":
                    self.assertGreater(v["ratio_low"], 1.02)
        self.assertTrue(all(n["reason"] for n in e["not_searched"]))

    def test_a_profile_is_used_only_when_told_and_says_so(self):
        with open(self.profile, encoding="utf-8") as file:
            profile = json.load(file)
        profile["settings"] = {"n_threads": 1, "n_ubatch": 48}
        path = os.path.join(self.folder, "set.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(profile, file)
        plain = document("run", "-m", self.model, "-p", "hello", "-n", "4", "--temp", "0")
        self.assertEqual(plain["config"]["n_ubatch"], 512)
        run = ridge("run", "-m", self.model, "-p", "hello", "-n", "4", "--temp", "0", "--profile", path, "--json")
        used = json.loads(run.stdout)
        self.assertEqual((used["config"]["n_threads"], used["config"]["n_ubatch"]), (1, 48))
        self.assertEqual(used["ids"], plain["ids"])
        self.assertIn(b"-t 1 -ub 48", run.stderr)
        given = document("run", "-m", self.model, "-p", "hello", "-n", "4", "--profile", path, "-ub", "16")
        self.assertEqual(given["config"]["n_ubatch"], 16)

    def test_a_profile_of_something_else_is_refused(self):
        with open(self.profile, encoding="utf-8") as file:
            profile = json.load(file)
        for change, word in (({"fingerprint": "0" * 16}, b"another machine"), ({"version": "0.0.9"}, b"another version"), ({"kind": "x"}, b"not a profile"),
                             ({"settings": {"n_threads": 0}}, b"not a profile"), ({"settings": {"isa": 3}}, b"not a profile")):
            path = os.path.join(self.folder, "wrong.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**profile, **change}, file)
            run = ridge("run", "-m", self.model, "-p", "x", "-n", "1", "--profile", path)
            self.assertEqual(run.returncode, 1, change)
            self.assertIn(word, run.stderr)
        run = ridge("run", "-m", self.other, "-p", "x", "-n", "1", "--profile", self.profile)
        self.assertEqual(run.returncode, 1)
        self.assertIn(b"another model", run.stderr)

    def test_constraints_that_nothing_meets(self):
        path = os.path.join(self.folder, "none.json")
        run = ridge("tune", "-m", self.model, "-p", "64", "--max-gap", "0.000001", "-o", path)
        self.assertEqual(run.returncode, 1)
        self.assertIn(b"--max-gap", run.stderr)
        self.assertFalse(os.path.exists(path))
        self.assertEqual(ridge("tune", "-m", self.model, "-p", "64", "--max-memory", "1kB").returncode, 1)
        self.assertEqual(ridge("tune", "-m", self.model, "-p", "1").returncode, 2)

    def test_doctor_on_a_model(self):
        checks = {c["id"]: c for c in document("doctor", "-m", self.model)["checks"]}
        for name in ("swap", "numa", "virtual_machine", "steal", "cpu_time", "thermal_throttling", "quota_throttling", "swapping", "memory_speed", "blas", "cuda_architecture",
                     "format_accelerated", "widest_isa", "kv_budget", "context", "quality_regression"):
            self.assertIn(name, checks)
        for c in checks.values():
            self.assertTrue(c["evidence"])
            self.assertEqual(c["status"] in ("warn", "fail"), bool(c["remedy"]), c)
        self.assertEqual(checks["kv_budget"]["status"], "ok")
        self.assertEqual(checks["quality_regression"]["status"], "warn")
        checks = {c["id"]: c for c in document("doctor", "-m", self.model, "-c", "1000000000")["checks"]}
        self.assertEqual((checks["kv_budget"]["status"], checks["context"]["status"]), ("fail", "warn"))
        checks = {c["id"]: c for c in document("doctor", "-m", self.model, RIDGE_ISA="scalar")["checks"]}
        self.assertEqual(checks["widest_isa"]["status"], "warn")
        self.assertEqual(ridge("doctor", "-c", "10").returncode, 2)
        checks = {c["id"]: c for c in document("doctor", "-m", self.model, "--evidence", self.folder)["checks"]}
        self.assertEqual(checks["quality_regression"]["status"], "fail")


if __name__ == "__main__":
    unittest.main()
