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
        batch = document("plan", "--memory", "64GB", "--scenario", "batch")
        self.assertEqual([r["scenario"] for r in batch["runtimes"] if r["chosen"]], ["batch"])
        self.assertIn(b"single, edge, concurrent, batch or agents", ridge("plan", "--scenario", "fast").stderr)

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
        memory = document("inspect", self.model, "--memory", "-c", "512", "-t", "1", "-np", "1", "--spec", "off")["memory"]
        self.assertEqual(plan["weights_bytes"], memory["weights_bytes"])
        self.assertEqual(plan["kv_bytes"], memory["kv_bytes"])
        self.assertEqual(plan["total_bytes"], memory["peak_bytes"])

    def test_no_winner_without_proof(self):
        e = self.tuned["evidence"]
        self.assertEqual([s["setting"] for s in e["searched"]], ["n_threads", "n_ubatch", "speculation"])
        self.assertEqual({n["setting"] for n in e["not_searched"]}, {"format", "n_batch", "cache_types", "flash_attn", "draft_model"})
        self.assertEqual((e["constraints"]["min_quality"], e["quality_measured"]), (None, None))
        for s in e["searched"]:
            states = {v["value"]: v for v in s["values"]}
            self.assertEqual(states[s["present"]]["state"], "present")
            if s["chosen"] != s["present"]:
                self.assertLess(states[s["chosen"]]["ratio_high"], 0.98)
                self.assertEqual(s["because"], "proved faster")
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
                             ({"settings": {"n_threads": 0}}, b"not a profile"), ({"settings": {"isa": 3}}, b"not a profile"), ({"settings": {"type_k": "q9"}}, b"not a profile"), ({"settings": {"speculation": "draft"}}, b"not a profile")):
            path = os.path.join(self.folder, "wrong.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**profile, **change}, file)
            run = ridge("run", "-m", self.model, "-p", "x", "-n", "1", "--profile", path)
            self.assertEqual(run.returncode, 1, change)
            self.assertIn(word, run.stderr)
        run = ridge("run", "-m", self.other, "-p", "x", "-n", "1", "--profile", self.profile)
        self.assertEqual(run.returncode, 1)
        self.assertIn(b"another model", run.stderr)

    def stored(self, folder, **settings):
        """A profile as if ridge tune had stored it below `folder`, and the environment that finds it."""
        with open(self.profile, encoding="utf-8") as file:
            profile = json.load(file)
        profile["settings"] = settings
        os.makedirs(os.path.join(folder, "ridge"), exist_ok=True)
        path = os.path.join(folder, "ridge", f"profile-{profile['fingerprint']}-{profile['model_hash']}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(profile, file)
        return path, profile, {"XDG_CACHE_HOME": folder}

    def test_a_stored_profile_is_picked_up(self):
        with tempfile.TemporaryDirectory() as folder:
            path, _, env = self.stored(folder, n_threads=1, n_ubatch=48, speculation="lookup")
            command = ["run", "-m", self.model, "-p", "hello", "-n", "4", "--temp", "0"]
            run = ridge(*command, "--json", **env)
            config = json.loads(run.stdout)["config"]
            self.assertEqual((config["n_threads"], config["n_ubatch"], config["speculation"], config["profile"]), (1, 48, "lookup", path))
            self.assertIn(path.encode(), run.stderr)
            self.assertIn(b"-t 1 -ub 48 --spec lookup", run.stderr)
            given = document(*command, "-ub", "16", "--spec", "off", **env)["config"]
            self.assertEqual((given["n_threads"], given["n_ubatch"], given["speculation"]), (1, 16, "off"))
            for left in (ridge(*command, "--no-profile", "--json", **env), ridge(*command, "--json", RIDGE_NO_PROFILE="1", **env)):
                config = json.loads(left.stdout)["config"]
                self.assertEqual((config["n_ubatch"], config["speculation"], config["profile"]), (512, "off", None))
                self.assertNotIn(b"profile", left.stderr)
            self.assertEqual(ridge(*command, "--no-profile", "--profile", path, **env).returncode, 2)
            named = document(*command, "--profile", path, RIDGE_NO_PROFILE="1", **env)["config"]
            self.assertEqual(named["n_ubatch"], 48)

    def test_what_is_found_is_stored_and_used(self):
        with tempfile.TemporaryDirectory() as folder:
            env = {"XDG_CACHE_HOME": folder}
            run = ridge("tune", "-m", self.model, "-p", "32", "--json", **env)
            self.assertEqual(run.returncode, 0, run.stderr)
            files = os.listdir(os.path.join(folder, "ridge"))
            self.assertEqual(len(files), 1)
            path = os.path.join(folder, "ridge", files[0])
            self.assertIn(path.encode(), run.stderr)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(json.load(file), json.loads(run.stdout))
            config = document("run", "-m", self.model, "-p", "hello", "-n", "2", **env)["config"]
            self.assertEqual(config["profile"], path)
            settings = json.loads(run.stdout)["settings"]  # whatever was the fastest here
            self.assertLessEqual({"n_threads", "n_ubatch"}, set(settings))
            self.assertEqual({k: config[k] for k in settings}, settings)
            wrong = ridge("tune", "-m", self.model, "-p", "32", XDG_CACHE_HOME="/proc/no")
            self.assertEqual(wrong.returncode, 1)
            self.assertIn(b"-o", wrong.stderr)

    def test_formats_and_cache_types_are_held_to_the_floor(self):
        same, damaged = (os.path.join(self.folder, n) for n in ("q8.gguf", "damaged.gguf"))
        tiny_model.write_tiny_model(same, context=2048, kind="Q8_0")
        tiny_model.write_tiny_model(damaged, context=2048, seed=2, kind="Q8_0")
        out = os.path.join(self.folder, "formats.json")
        d = document("tune", "-m", same, "--formats", self.model, damaged, "-p", "32", "--min-quality", "0.5", "-o", out)
        e, searched = d["evidence"], {s["setting"]: s for s in d["evidence"]["searched"]}
        self.assertEqual(list(searched), ["format", "n_threads", "n_ubatch", "cache_types", "flash_attn", "speculation"])
        self.assertIn(self.model, e["quality_measured"])  # the largest of the three is the best
        formats = {v["value"]: v for v in searched["format"]["values"]}
        self.assertEqual(formats[self.model]["quality"]["same_top"], 1)
        self.assertGreater(formats[same]["quality"]["same_top_low"], 0.5)
        self.assertLess(formats[damaged]["quality"]["same_top"], 0.5)
        self.assertIn("--min-quality", formats[damaged]["refused"])
        self.assertEqual(formats[damaged]["pairs"], [])
        for v in searched["cache_types"]["values"]:  # heads of 16 channels have no blocks of 32
            self.assertEqual(v["refused"] is not None, v["value"] != "f16", v)
        flash = {v["value"]: v for v in searched["flash_attn"]["values"]}
        self.assertGreater(flash["off"]["quality"]["n_positions"], 500)
        self.assertEqual(set(d["settings"]) - {"n_threads", "n_ubatch", "flash_attn", "speculation"}, set())
        self.assertGreater(d["same_top"], 0.5)
        run = ridge("run", "-m", e["model"], "-p", "hello", "-n", "2", "--profile", out)
        self.assertEqual(run.returncode, 0, run.stderr)
        # Nothing but the best one finds the same token every time.
        d = document("tune", "-m", self.model, "--formats", same, damaged, "-p", "32", "--min-quality", "1", "--search", "format,cache,flash", "-o", out)
        for s in d["evidence"]["searched"]:
            self.assertEqual((s["chosen"], s["present"]), (s["values"][0]["value"], s["values"][0]["value"]))
            for v in s["values"][1:]:
                self.assertTrue(v["refused"], v)
        self.assertIn({"setting": "threads", "reason": "--search leaves it out"}, d["evidence"]["not_searched"])
        # What is there does not meet the floor: the search starts from what does.
        d = document("tune", "-m", damaged, "--formats", self.model, "-p", "32", "--min-quality", "0.5", "--search", "format", "-o", out)
        self.assertEqual((d["evidence"]["model"], d["evidence"]["searched"][0]["present"]), (self.model, self.model))

    def test_a_search_that_cannot_be(self):
        with tempfile.TemporaryDirectory() as folder:
            env = {"XDG_CACHE_HOME": folder}
            for more, word in ((["--formats", self.other], b"--min-quality"), (["--search", "cache"], b"--min-quality"), (["--search", "cores"], b"cores"),
                               (["--min-quality", "2"], b"--min-quality"), (["--search", "format", "--min-quality", "0.9"], b"--formats"),
                               (["--formats", self.other, "--min-quality", "0.9", "--search", "threads"], b"--formats")):
                run = ridge("tune", "-m", self.model, "-p", "32", *more, **env)
                self.assertEqual(run.returncode, 2, (more, run.stderr))
                self.assertIn(word, run.stderr)
            strange = os.path.join(folder, "strange.gguf")
            tiny_model.write_tiny_model(strange, context=2048, architecture="qwen2")
            run = ridge("tune", "-m", self.model, "-p", "32", "--formats", strange, "--min-quality", "0.9", **env)
            self.assertEqual(run.returncode, 1)
            self.assertIn(b"not the same model", run.stderr)
            run = ridge("tune", "-m", self.model, "-p", "32", "--max-memory", "1kB", **env)
            self.assertEqual(run.returncode, 1)
            self.assertIn(b"--max-memory", run.stderr)
            self.assertEqual([f for f in os.listdir(os.path.join(folder, "ridge")) if f.endswith(".json")] if os.path.isdir(os.path.join(folder, "ridge")) else [], [])

    def test_a_stored_profile_in_bench(self):
        with tempfile.TemporaryDirectory() as folder:
            path, _, env = self.stored(folder, n_threads=1, n_ubatch=48, type_k="bf16", type_v="f32", flash_attn="off")
            bench = lambda *more: document("bench", "-m", self.model, "-p", "8", "-n", "0", "-r", "1", *more, **env)[0]
            row = bench()
            self.assertEqual([row[k] for k in ("n_threads", "n_ubatch", "type_k", "type_v", "flash_attn", "profile")], [1, 48, "bf16", "f32", False, path])
            row = bench("-ub", "16", "-ctk", "f16", "-fa", "on")
            self.assertEqual([row[k] for k in ("n_threads", "n_ubatch", "type_k", "type_v", "flash_attn")], [1, 16, "f16", "f32", True])
            row = bench("--no-profile")
            self.assertEqual([row[k] for k in ("n_ubatch", "type_k", "profile")], [512, "f16", None])

    def test_settings_that_change_answers_are_told(self):
        with tempfile.TemporaryDirectory() as folder:
            path, profile, env = self.stored(folder, type_k="bf16", type_v="f32", flash_attn="off")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**profile, "same_top": 0.875}, file)
            command = ["run", "-m", self.model, "-p", "hello", "-n", "4", "--json"]
            run = ridge(*command, **env)
            config = json.loads(run.stdout)["config"]
            self.assertEqual((config["type_k"], config["type_v"], config["flash_attn"]), ("bf16", "f32", "off"))
            self.assertIn(b"answers change: the likeliest next token was the same 87.5 %", run.stderr)
            config = document(*command[:-1], "-ctk", "f16", "-fa", "on", **env)["config"]
            self.assertEqual((config["type_k"], config["type_v"], config["flash_attn"]), ("f16", "f32", "on"))

    def test_a_stored_profile_of_something_else_is_left(self):
        with tempfile.TemporaryDirectory() as folder:
            path, profile, env = self.stored(folder, n_ubatch=48)
            command = ["run", "-p", "hello", "-n", "2", "--json"]
            other = ridge(*command, "-m", self.other, **env)
            self.assertEqual(json.loads(other.stdout)["config"]["n_ubatch"], 512)
            self.assertNotIn(b"profile", other.stderr)
            for change, word in (({"version": "0.0.9"}, b"another version"), ({"kind": "x"}, b"not a profile")):
                with open(path, "w", encoding="utf-8") as file:
                    json.dump({**profile, **change}, file)
                run = ridge(*command, "-m", self.model, **env)
                self.assertEqual((run.returncode, json.loads(run.stdout)["config"]["n_ubatch"]), (0, 512))
                self.assertIn(word, run.stderr)

    def test_a_served_model_takes_its_stored_profile(self):
        with tempfile.TemporaryDirectory() as folder:
            path, _, env = self.stored(folder, n_threads=1, n_ubatch=48, speculation="off")
            with subprocess.Popen([RIDGE, "serve", "-m", self.model, "--port", "0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **env}) as server:
                text = ""
                while not text.endswith("\n}\n"):
                    line = server.stdout.readline().decode()
                    self.assertTrue(line, text)
                    text += line
                server.terminate()
                server.stdout.read()
            config = json.loads(text)["config"]
            self.assertEqual((config["n_threads"], config["n_ubatch"], config["speculation"], config["profile"]), (1, 48, "off", path))

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
                     "format_accelerated", "widest_isa", "kv_budget", "context", "batch", "flash_attention", "quality_regression"):
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
