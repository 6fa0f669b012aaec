"""`ridge inspect --memory`: the plan adds up, follows the settings, holds for a process that runs, and refuses what cannot fit before weights are read.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/memory_test.py
"""
import json
import os
import resource
import subprocess
import tempfile
import unittest

try:
    from tiny_model import write_tiny_model
    MISSING = ""
except ImportError as error:
    MISSING = f"writes models with the gguf package: {error}"

RIDGE = os.environ.get("RIDGE_BIN", "build/release/bin/ridge")
PARTS = ("weights_bytes", "workspace_bytes", "logits_bytes", "kv_bytes", "scratch_bytes", "other_bytes", "draft_bytes", "draft_kv_bytes")
SANITIZED = "dev" in RIDGE.split(os.sep)  # shadow memory is no part of the plan


@unittest.skipIf(MISSING, MISSING)
class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "tiny.gguf")
        write_tiny_model(cls.path)
        cls.recurrent = os.path.join(cls.folder.name, "tiny35.gguf")
        write_tiny_model(cls.recurrent, architecture="qwen35")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_ridge(self, *args):
        return subprocess.run([RIDGE, *args], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)

    def plan(self, *args, path=None):
        ran = self.run_ridge("inspect", path or self.path, "--memory", "--json", *args)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return json.loads(ran.stdout)["memory"]

    def test_parts_sum_to_the_peak(self):
        for path in (self.path, self.recurrent):
            p = self.plan("-c", "256", "-np", "4", path=path)
            self.assertEqual(p["peak_bytes"], sum(p[name] for name in PARTS) + p["state_slots"] * p["state_slot_bytes"])
            self.assertEqual(p["kv_tokens"], p["kv_pages"] * p["page_tokens"])
            self.assertEqual(p["kv_bytes"], p["kv_pages"] * p["kv_page_bytes"])
            self.assertEqual(p["full_requests"], 4)
            self.assertTrue(p["fits"])
            self.assertEqual(p["state_slots"] > 0, path == self.recurrent)

    def test_settings_change_what_they_name(self):
        base = self.plan("-c", "256", "-np", "2")
        self.assertEqual(self.plan("-c", "256", "-np", "6")["kv_bytes"], 3 * base["kv_bytes"])
        self.assertEqual(self.plan("-c", "128", "-np", "2")["kv_tokens"], base["kv_tokens"] // 2)
        q8 = self.plan("-c", "256", "-np", "2", "-ctk", "f32", "-ctv", "f32")
        self.assertEqual(q8["kv_page_bytes"], 2 * base["kv_page_bytes"])
        self.assertGreater(self.plan("-c", "256", "-ub", "1024")["workspace_bytes"], base["workspace_bytes"])
        # All pages that the bytes give, and as many as the requests need: how a backend lays them takes none away.
        page = base["kv_page_bytes"]
        for requests, given, pages in ((1, None, 65), (3, None, 195), (2, 130, 130), (2, 131, 131), (1, 64, 64)):
            memory = ("--kv-memory", str(given * page)) if given else ()
            plan = self.plan("-c", "2080", "-np", str(requests), *memory)
            self.assertEqual((plan["kv_pages"], plan["full_requests"]), (pages, pages // 65))
        pool = self.plan("-c", "256", "-np", "2", "--kv-memory", "64KiB")
        self.assertEqual(pool["kv_pages"], 65536 // base["kv_page_bytes"])
        self.assertLessEqual(pool["kv_bytes"], 65536)

    def test_a_pool_that_holds_no_request_does_not_fit(self):
        small = ("--kv-memory", "16kib")  # two pages of 32 tokens
        p = self.plan("-c", "200", *small)
        self.assertEqual((p["kv_tokens"], p["full_requests"], p["fits"]), (64, 0, False))
        self.assertIn("64 tokens holds no request of the whole context of 200 tokens", p["fits_reason"])
        shown = self.run_ridge("inspect", self.path, "--memory", "-c", "200", *small)
        self.assertIn("NO REQUEST of 200 tokens at once", shown.stdout)
        self.assertIn("DOES NOT FIT: the KV pool", shown.stdout)
        self.assertNotIn("fits: within", shown.stdout)
        for what in ("--kv-memory", "57344 bytes or more for 200 tokens", "-c 64"):
            self.assertIn(what, shown.stderr)
        one = self.plan("-c", "200", "--kv-memory", "57344")
        self.assertEqual((one["full_requests"], one["fits"], one["fits_reason"]), (1, True, None))
        # A context that nobody gave gives way, and says so.
        ran = self.run_ridge("inspect", self.path, "--memory", "--json", *small)
        document = json.loads(ran.stdout)
        self.assertEqual((document["config"]["n_ctx"], document["memory"]["full_requests"], document["memory"]["fits"]), (64, 1, True))
        self.assertIn("--kv-memory holds; without it 256", document["config"]["n_ctx_reason"])

    def test_sizes_are_written_as_people_do(self):
        for typed in ("65536", "64KiB", "64kib", "64k", "64K", "64 KiB", "0.0625m", "65.536kB", "65.536kb"):
            self.assertEqual(self.plan("-c", "64", "--kv-memory", typed)["kv_pages"], 8, typed)
        for typed in ("", "64x", "KiB", "-64k", "nan"):
            for command in (("inspect", self.path, "--memory", "--kv-memory"), ("serve", "-m", self.path, "--port", "0", "--kv-memory"), ("plan", "--memory"), ("tune", "-m", self.path, "--max-memory")):
                ran = self.run_ridge(*command, typed)
                self.assertEqual(ran.returncode, 2, (command, typed, ran.stderr))
                self.assertRegex(ran.stderr, rf"(?m)^error: .*{command[-1]}: found {typed or '..'}, expected ")

    def test_drafts_are_counted(self):
        base, drafted = self.plan("-c", "256", "-np", "2"), self.plan("-c", "256", "-np", "2", "--draft-model", self.path)
        self.assertEqual((base["draft_bytes"], base["draft_kv_bytes"]), (0, 0))
        self.assertEqual(drafted["draft_kv_bytes"], base["kv_bytes"], "the same model: as many pages of the same size")
        self.assertGreater(drafted["draft_bytes"], base["weights_bytes"])
        self.assertEqual(drafted["peak_bytes"], sum(drafted[name] for name in PARTS))
        off = self.plan("-c", "256", "-np", "2", "--spec", "off")
        self.assertGreater(base["logits_bytes"], off["logits_bytes"], "rows of drafts")
        self.assertEqual(self.plan("-np", "2", "--spec", "off", path=self.recurrent)["draft_slots"], 0)
        states = self.plan("-np", "2", "--spec", "lookup", path=self.recurrent)
        self.assertEqual(states["draft_slots"], 8)
        self.assertEqual(states["state_slots"], 2 + states["checkpoints"] + 8)
        self.assertIn("draft model", self.run_ridge("inspect", self.path, "--memory", "-md", self.path).stdout)

    @unittest.skipIf(SANITIZED, "a sanitized program takes more than the plan says")
    def test_a_run_stays_within_the_plan(self):
        plan = self.plan("-c", "256", "-t", "2", "-np", "1", "--spec", "off")
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        child = subprocess.Popen([RIDGE, "run", "-m", self.path, "-p", "the quick " * 20, "-n", "100", "-c", "256", "-t", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, _, usage = os.wait4(child.pid, 0)
        child.returncode = 0
        # The program's own pages (about 16 MiB with its libraries) are file pages too.
        self.assertLess(1024 * usage.ru_maxrss, plan["peak_bytes"] + plan["mapped_bytes"] + (20 << 20), f"other children: {before} KiB")

    def test_what_cannot_fit_is_told_and_refused(self):
        p = self.plan("-c", "1000000000")
        self.assertFalse(p["fits"])
        shown = self.run_ridge("inspect", self.path, "--memory", "-c", "1000000000")
        self.assertIn("DOES NOT FIT", shown.stdout)
        ran = self.run_ridge("run", "-m", self.path, "-p", "a", "-n", "1", "-c", "1000000000")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("do not fit into memory", ran.stderr)
        small = self.run_ridge("inspect", self.path, "--memory", "--kv-memory", "100")
        self.assertNotEqual(small.returncode, 0)
        self.assertIn("--kv-memory", small.stderr)
        self.assertEqual(self.run_ridge("inspect", self.path, "-c", "5").returncode, 2, "-c needs --memory")


if __name__ == "__main__":
    unittest.main()
