"""`ridge perplexity` and `ridge kld` on tiny random models: against llama-perplexity's figures, against all scores by numpy, and bad input.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/perplexity_test.py
"""
import json
import math
import os
import subprocess
import tempfile
import unittest

try:
    import numpy as np

    from tiny_model import write_tiny_model
    MISSING = ""
except ImportError as error:
    MISSING = f"writes models with the gguf package: {error}"

RIDGE = os.environ.get("RIDGE_BIN", "build/release/bin/ridge")
TEXT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "bilingual.txt")

# What llama-perplexity (llama.cpp b0.5.0 of llama_cpp_python 0.3.36) said of the same file and text: `-c 64 -b 64`, and `-c 96 -b 96 --ppl-stride 32`,
# which it makes windows of 256 of. Random weights believe strongly in nonsense, so the figures are large.
LLAMA_64, LLAMA_64_ERROR, LLAMA_64_FIRST = 6162708250.7417, 1004297783.95167, 10647090174.0833
LLAMA_STRIDED, LLAMA_STRIDED_WINDOWS = 8047280657.7081, 175


def run(*args, status=0):
    done = subprocess.run([RIDGE, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    if done.returncode != status:
        raise AssertionError(f"{args}: status {done.returncode}, {done.stderr.decode()}")
    return done


def document(*args):
    return json.loads(run(*args, "--json").stdout)


@unittest.skipIf(MISSING, MISSING)
class Quality(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model, cls.other = cls.path("m.gguf"), cls.path("other.gguf")
        write_tiny_model(cls.model, context=256, seed=7, add_bos=True)
        write_tiny_model(cls.other, context=256, seed=8, add_bos=True)
        cls.reference = cls.path("m.ref")
        cls.saved = document("perplexity", "-m", cls.model, "-f", TEXT, "-c", "64", "--chunks", "20", "--save-reference", cls.reference)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    def scores(self, model, windows, size=64):
        """log softmax of the second half of each window: [windows, rows, vocab], and the targets."""
        ids = json.loads(run("tokenize", "-m", model, "-f", TEXT, "--json").stdout)["ids"]
        rows, targets = [], []
        for w in range(windows):
            chunk = ids[w * size:(w + 1) * size]
            run("logits", "-m", model, "--ids", ",".join(map(str, [0] + chunk[1:])), "-o", self.path("x.f32"))
            x = np.fromfile(self.path("x.f32"), np.float32).reshape(size, -1)[size // 2:size - 1].astype(np.float64)
            x -= x.max(axis=1, keepdims=True)
            rows.append(x - np.log(np.exp(x).sum(axis=1, keepdims=True)))
            targets.append(chunk[size // 2 + 1:])
        return np.array(rows), np.array(targets)

    def test_equals_llama_perplexity(self):
        d = document("perplexity", "-m", self.model, "-f", TEXT, "-c", "64")
        self.assertAlmostEqual(d["perplexity"] / LLAMA_64, 1, delta=1e-3)
        self.assertAlmostEqual(d["perplexity_error"] / LLAMA_64_ERROR, 1, delta=1e-3)
        self.assertAlmostEqual(d["running"][0] / LLAMA_64_FIRST, 1, delta=1e-3)
        self.assertEqual((d["n_windows"], d["n_scored"], d["scored"], d["bos_per_window"]), (91, 91 * 31, "second_half", True))
        self.assertEqual(d["tokens_left_out"], d["n_tokens"] - 91 * 64)
        self.assertGreater(d["tokens_per_second"], 0)

    def test_equals_llama_perplexity_with_a_stride(self):
        d = document("perplexity", "-m", self.model, "-f", TEXT, "-c", "256", "--stride", "32")
        self.assertAlmostEqual(d["perplexity"] / LLAMA_STRIDED, 1, delta=1e-3)
        self.assertEqual((d["n_windows"], d["scored"], d["bos_per_window"]), (LLAMA_STRIDED_WINDOWS, "stride", False))

    def test_equals_what_all_scores_give(self):
        rows, targets = self.scores(self.model, 3)
        expected = [-rows[w, i, targets[w, i]] for w in range(3) for i in range(rows.shape[1])]
        d = document("perplexity", "-m", self.model, "-f", TEXT, "-c", "64", "--chunks", "3")
        self.assertAlmostEqual(d["mean_nll"], np.mean(expected), delta=1e-6)
        self.assertAlmostEqual(d["perplexity_error"] / d["perplexity"], np.std(expected) / math.sqrt(len(expected) - 1), delta=1e-6)
        scripts = d["by_script"]
        self.assertEqual(set(scripts), {"latin", "han"} & set(scripts))
        self.assertEqual(sum(s["n_tokens"] for s in scripts.values()), d["n_scored"])

    def test_whole_windows_and_settings_that_change_no_bit(self):
        base = document("perplexity", "-m", self.model, "-f", TEXT, "-c", "64", "--whole", "--chunks", "9")
        self.assertEqual((base["n_scored"], base["scored"]), (9 * 63, "whole"))
        for more in (["-t", "1"], ["-ub", "7"], ["-ub", "64"], ["--kv-page", "16"]):
            other = document("perplexity", "-m", self.model, "-f", TEXT, "-c", "64", "--whole", "--chunks", "9", *more)
            self.assertEqual(other["running"], base["running"], more)

    def test_reference_is_the_same_whatever_shared_a_step(self):
        run("perplexity", "-m", self.model, "-f", TEXT, "-c", "64", "--chunks", "20", "-ub", "64", "-t", "1", "--save-reference", self.path("again.ref"))
        with open(self.reference, "rb") as a, open(self.path("again.ref"), "rb") as b:
            first, second = a.read(), b.read()
        begin = first.index(b'}}') + 2, second.index(b'}}') + 2  # the settings in the header differ, as they should
        self.assertEqual(first[begin[0]:-8], second[begin[1]:-8])
        self.assertGreater(len(first) - begin[0], 10000)

    def test_divergence_of_the_same_model_is_zero(self):
        d = document("kld", "-m", self.model, "--reference", self.reference)
        self.assertLess(abs(d["mean_kld"]), 1e-5)
        self.assertEqual(d["same_top"], 1)
        self.assertLess(d["rms_delta_p"], 1e-6)
        self.assertAlmostEqual(d["perplexity"] / self.saved["perplexity"], 1, delta=1e-9)
        self.assertAlmostEqual(d["reference_perplexity"] / self.saved["perplexity"], 1, delta=1e-5)

    def test_divergence_equals_what_all_scores_give(self):
        d = document("kld", "-m", self.other, "--reference", self.reference, "-f", TEXT)
        p, targets = self.scores(self.model, 20)
        q, _ = self.scores(self.other, 20)
        kld = (np.exp(p) * (p - q)).sum(axis=2).ravel()
        self.assertAlmostEqual(d["mean_kld"] / kld.mean(), 1, delta=0.01)
        self.assertLess(abs(d["mean_kld"] - kld.mean()), 5 * d["kld_sampling_error"] + 1e-5)
        self.assertAlmostEqual(d["mean_kld_error"] / (kld.std() / math.sqrt(len(kld) - 1)), 1, delta=0.02)
        self.assertAlmostEqual(d["kld"]["p50"] / np.quantile(kld, 0.5), 1, delta=0.02)
        self.assertAlmostEqual(d["kld"]["max"] / kld.max(), 1, delta=0.05)
        self.assertEqual(d["same_top"], np.mean(p.argmax(axis=2) == q.argmax(axis=2)))
        at = np.arange(targets.shape[1])
        delta = np.concatenate([np.exp(q[w, at, targets[w]]) - np.exp(p[w, at, targets[w]]) for w in range(20)])
        self.assertAlmostEqual(d["mean_delta_p"], delta.mean(), delta=1e-6)
        self.assertAlmostEqual(d["rms_delta_p"], math.sqrt((delta**2).mean()), delta=1e-6)
        self.assertAlmostEqual(d["ln_perplexity_ratio"], math.log(d["perplexity"] / d["reference_perplexity"]), delta=1e-6)
        self.assertEqual(sum(s["n_tokens"] for s in d["by_script"].values()), d["n_tokens"])

    def test_tables_for_people(self):
        text = run("perplexity", "-m", self.model, "-f", TEXT, "-c", "64", "--chunks", "20").stdout.decode()
        self.assertRegex(text, r"(?m)^perplexity [\d.]+ ± [\d.]+$")
        self.assertIn("fill no window and are left out", text)
        self.assertRegex(text, r"(?m)^han +\d+ ")
        text = run("kld", "-m", self.other, "--reference", self.reference).stdout.decode()
        self.assertRegex(text, r"(?m)^all +620 ")

    def error(self, *args, status=1):
        done = run(*args, status=status)
        lines = [line for line in done.stderr.decode().splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        return lines[0]

    def test_bad_settings_are_refused(self):
        base = ["perplexity", "-m", self.model]
        self.assertIn("give the text", self.error(*base, status=2))
        self.assertIn("shorter than one window", self.error(*base, "-p", "too short"))
        self.assertIn("--stride", self.error(*base, "-f", TEXT, "-c", "64", "--stride", "64", status=2))
        self.assertIn("one of --whole and --stride", self.error(*base, "-f", TEXT, "-c", "64", "--stride", "8", "--whole", status=2))
        self.assertIn("--save-reference", self.error(*base, "-f", TEXT, "--top", "5", status=2))
        self.assertIn("--top", self.error(*base, "-f", TEXT, "-c", "64", "--top", "100000", "--save-reference", self.path("no.ref"), status=2))
        self.assertFalse(os.path.exists(self.path("no.ref")))
        with open(TEXT, "rb") as file:
            text = file.read()
        with open(self.path("text.txt"), "wb") as file:
            file.write(text)
        self.assertIn("would replace", self.error(*base, "-f", self.path("text.txt"), "-c", "64", "--save-reference", self.path("text.txt")))
        with open(self.path("text.txt"), "rb") as file:
            self.assertEqual(file.read(), text)
        self.assertIn("64 MiB at most", self.error(*base, "-f", "/dev/zero"))
        self.assertIn("a directory", self.error(*base, "-f", self.folder.name))

    def test_a_reference_of_other_things_is_refused(self):
        with open(TEXT, encoding="utf-8") as file:
            text = file.read()
        kld = ["kld", "--reference", self.reference]
        self.assertIn("the text differs", self.error(*kld, "-m", self.other, "-p", text.replace("ferry", "barge")))
        self.assertIn("-c differs", self.error(*kld, "-m", self.other, "-c", "32"))
        strange = self.path("strange.gguf")
        with open(self.other, "rb") as file:
            data = file.read()
        with open(strange, "wb") as file:
            file.write(data.replace(b"<|im_start|>", b"<|im_begin|>", 1))  # one token's text
        self.assertIn("another vocabulary", self.error(*kld, "-m", strange))
        with open(self.reference, "rb") as file:
            data = bytearray(file.read())
        data[len(data) // 2] ^= 1
        with open(self.path("flipped.ref"), "wb") as file:
            file.write(data)
        self.assertIn("damaged", self.error("kld", "-m", self.other, "--reference", self.path("flipped.ref")))
        self.assertIn("no reference", self.error("kld", "-m", self.other, "--reference", TEXT))


if __name__ == "__main__":
    unittest.main()
