"""Speculative decoding, from outside: a draft model in ridge run and ridge serve. The answers are those without, bit for bit; what cannot draft is refused.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/speculation_test.py

The draft model is a tiny one, the target the same with 60 layers behind it that add nothing: both say the same, and one is 30 times cheaper.
How much is drafted follows from the times that steps take here, so counts are held to their laws alone; how many drafts a model of given speed
gets is told by a clock of the tests' own (src/engine/drafter_test.cc, speculation_test.cc).
"""
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import RIDGE, Server
try:
    import qwen35_model
    import tiny_model
    MISSING = ""
except ImportError as error:
    tiny_model, MISSING = None, f"needs the Python package {error.name}"

TEXT, SILENT = "/v1/completions", 60


def ridge(*args):
    return subprocess.run([RIDGE, *args], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


@unittest.skipIf(tiny_model is None, MISSING)
class DraftModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        path = lambda name: os.path.join(cls.folder, name)
        cls.target, cls.draft, cls.other, cls.words, cls.recurrent = map(path, ("target.gguf", "draft.gguf", "other.gguf", "words.gguf", "recurrent.gguf"))
        tiny_model.write_tiny_model(cls.target, silent=SILENT)
        tiny_model.write_tiny_model(cls.draft)
        tiny_model.write_tiny_model(cls.other, seed=9)
        tiny_model.write_tiny_model(cls.recurrent, architecture="qwen35")
        cls.deep = path("deep.gguf")
        qwen35_model.write_qwen35(cls.deep, layers=24, pre="gpt-2")
        with open(cls.draft, "rb") as file:
            data = file.read()
        assert data.count(b"<|im_start|>") == 1
        with open(cls.words, "wb") as file:
            file.write(data.replace(b"<|im_start|>", b"<|im_stort|>"))

    def run_json(self, *args):
        ran = ridge("run", "-m", self.target, "-p", "the quick the", "-n", "48", "-t", "1", "--ignore-eos", "--json", *args)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return json.loads(ran.stdout)

    def test_run_says_the_same_in_fewer_steps(self):
        for sampling in (["--temp", "0"], ["--temp", "0.9", "-s", "7"]):
            plain = self.run_json(*sampling)
            self.assertEqual(plain["drafts_proposed"], 0)
            self.assertIsNone(plain["speculation_gain"])
            self.assertEqual(plain["decode_steps"], 47)
            for flags in (["--draft-model", self.draft, "--spec", "draft"], ["-md", self.draft], ["--model-draft", self.other]):
                told = self.run_json(*sampling, *flags)
                self.assertEqual(told["ids"], plain["ids"], (sampling, flags))
                self.assertLessEqual(told["drafts_accepted"], told["drafts_proposed"])
                self.assertEqual(told["decode_steps"] + told["drafts_accepted"], 47)
                self.assertAlmostEqual(sum(told["parts_ms"].values()), told["total_ms"], delta=0.01)
                if self.draft in flags and flags[-1] == "draft":  # looking up may propose what is wrong
                    self.assertGreater(told["drafts_accepted"], 0)
                    self.assertEqual(told["drafts_accepted"], told["drafts_proposed"], "the draft model says the same")
                    self.assertGreater(told["speculation_gain"], 0)
                    self.assertGreater(told["draft_ms"], 0)
                    self.assertEqual(told["config"]["speculation"], "draft")
                    self.assertEqual(told["config"]["draft_model"], self.draft)

    def test_serve_says_the_same_to_many_at_once(self):
        prompts = ["the quick ", "the the the ", "quick " * 12, "the quick " + "lazy " * 9]
        bodies = [{"prompt": p, "max_tokens": 40, "temperature": t, "seed": 3, "ignore_eos": True, "logprobs": 2, "n": n} for p in prompts for t, n in ((0, 1), (0.8, 2))]

        def answers(*flags):
            with Server(self.target, "-np", "6", "-c", "200", "-t", "1", *flags) as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
                alone = [server.post(TEXT, b) for b in bodies]
                together = list(pool.map(lambda b: server.post(TEXT, b), bodies))
                for status, document in alone + together:
                    self.assertEqual(status, 200, document)
                metrics = server.get("/metrics")[2].decode()
            return [[d["choices"] for _, d in some] for some in (alone, together)], [d["ridge"] for _, d in alone], metrics

        plain, _, _ = answers("--spec", "off")
        self.assertEqual(plain[0], plain[1])
        for flags in (["--spec", "draft"], ["--spec", "auto"]):
            told, receipts, metrics = answers("--draft-model", self.draft, *flags)
            self.assertEqual(told, [plain[0], plain[0]], flags)
            self.assertGreater(sum(r["drafts_accepted"] for r in receipts), 0)
            self.assertTrue(all(r["speculation_gain"] is not None for r in receipts if r["drafts_proposed"]))
            counters = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
            value = lambda name: next(float(v) for k, v in counters.items() if k.startswith(name))
            self.assertGreater(value("ridge:draft_passes_total"), 0)
            self.assertEqual(value("ridge:draft_failures_total"), 0)

    def test_recurrent_models_take_their_state_back(self):
        """qwen35: the same bits by looking up and with a draft model; prompts that repeat, so that much is drafted, and some of it wrong."""
        prompts = ["one two three four five six " * 6 + "one two", "ab" * 60, "the quick brown fox. " * 5 + "the quick red fox. the quick brown"]
        bodies = [{"prompt": p, "max_tokens": 60, "temperature": t, "seed": 3, "ignore_eos": True, "logprobs": 1} for p in prompts for t in (0, 0.7)]

        def answers(*flags):
            with Server(self.deep, "-np", "3", "-c", "250", "-t", "1", *flags) as server, concurrent.futures.ThreadPoolExecutor(6) as pool:
                alone = [server.post(TEXT, b) for b in bodies]
                together = list(pool.map(lambda b: server.post(TEXT, b), bodies))
                for status, document in alone + together:
                    self.assertEqual(status, 200, document)
            return [[d["choices"] for _, d in some] for some in (alone, together)], [d["ridge"] for _, d in alone + together]

        plain, _ = answers("--spec", "off")
        self.assertEqual(plain[0], plain[1])
        for flags in (["--spec", "lookup"], ["--spec", "draft", "-md", self.draft], ["-md", self.other]):
            told, receipts = answers(*flags)
            self.assertEqual(told, plain, flags)
            proposed, accepted = (sum(r[name] for r in receipts) for name in ("drafts_proposed", "drafts_accepted"))
            self.assertGreater(proposed, 0, flags)
            if "lookup" in flags:
                self.assertGreater(accepted, 0)
                self.assertLess(accepted, proposed)

    def refused(self, status, *says, target=None, flags):
        for command in (["run", "-p", "a"], ["serve", "--port", "0"]):
            ran = ridge(command[0], "-m", target or self.target, *command[1:], *flags)
            self.assertEqual(ran.returncode, status, ran.stderr)
            for text in says:
                self.assertIn(text, ran.stderr)

    def test_what_cannot_draft_is_refused(self):
        self.refused(1, "another vocabulary", self.target, self.words, "token 1", "<|im_stort|>", "<|im_start|>", "--spec lookup", flags=["--draft-model", self.words])
        self.refused(1, "missing.gguf", flags=["--draft-model", os.path.join(self.folder, "missing.gguf")])
        self.refused(1, "recurrent model cannot draft", self.recurrent, "qwen35", flags=["-md", self.recurrent])
        self.refused(1, "draft model", "do not fit into memory", flags=["-md", self.draft, "-c", "900000000"])
        self.refused(2, "--spec draft", "--draft-model", flags=["--spec", "draft"])
        self.refused(2, "--draft-model", "--spec off", flags=["--draft-model", self.draft, "--spec", "off"])
        self.refused(2, "--draft-model", "--spec lookup", flags=["--draft-model", self.draft, "--spec", "lookup"])
        ran = ridge("serve", "--port", "0", "-m", self.target, "--embeddings", "-md", self.draft)
        self.assertEqual((ran.returncode, "--embeddings" in ran.stderr), (2, True), ran.stderr)
        self.refused(2, "--spec", "sometimes", flags=["--spec", "sometimes"])


if __name__ == "__main__":
    unittest.main()
