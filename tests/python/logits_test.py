"""`ridge logits` on the two real models against stored figures of llama.cpp and of the exact result (tests/golden/logits).

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/logits_test.py

The distance is the KL divergence over the eight likeliest tokens of the reference and one bin for all others: a lower bound of the full one. Both
engines lie about equally far from the exact result, since both multiply with 8-bit activations; ridge may be at most 1.1 times as far as llama.cpp.
"""
import json
import math
import os
import subprocess
import tempfile
import unittest

try:
    import numpy as np
    MISSING = ""
except ImportError as error:
    MISSING = f"reads the scores with numpy: {error}"

RIDGE = os.environ.get("RIDGE_BIN", "build/release/bin/ridge")
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "logits")
STORE_NAMES = {"smollm2": "smollm2:135m", "gemma3": "gemma3:270m"}


def model_path(name, file_name):
    """The file under RIDGE_MODELS, else in the store; None where it is in neither."""
    path = os.path.join(os.environ.get("RIDGE_MODELS", "/nonexistent"), file_name)
    if os.path.exists(path):
        return path
    shown = subprocess.run([RIDGE, "show", STORE_NAMES[name]], capture_output=True)
    return STORE_NAMES[name] if shown.returncode == 0 else None


def binned_kl(reference, other):
    """Mean KL(reference || other) over eight bins and the rest; other: log-probabilities of the reference's ids."""
    total = 0.0
    for (_, log_p), log_q in zip(reference, other):
        p, q = [math.exp(x) for x in log_p], [math.exp(x) for x in log_q]
        for a, la, lb in zip(p, log_p, log_q):
            total += a * (la - lb)
        rest_p, rest_q = max(1e-9, 1 - sum(p)), max(1e-9, 1 - sum(q))
        total += rest_p * math.log(rest_p / rest_q)
    return total / len(reference)


@unittest.skipIf(MISSING, MISSING)
class LogitsTest(unittest.TestCase):
    def check(self, name):
        with open(os.path.join(GOLDEN, name + ".json")) as file:
            golden = json.load(file)
        path = model_path(name, golden["model"])
        if path is None:
            self.skipTest(f"needs {STORE_NAMES[name]} in the store (ridge pull {STORE_NAMES[name]}) or {golden['model']} in the folder RIDGE_MODELS")
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "logits.f32")
            ran = subprocess.run([RIDGE, "logits", "-m", path, "--ids", ",".join(map(str, golden["ids"])), "-o", out, "--json"], capture_output=True, check=True)
            document = json.loads(ran.stdout)
            rows = np.memmap(out, np.float32, "r", shape=(document["n_tokens"], document["n_vocab"]))
            self.assertEqual(document["n_tokens"], len(golden["ids"]))
            of_exact, tops = [], []
            for row, (ids, _) in zip(rows, golden["exact"]):
                x = np.array(row, np.float64)
                x -= x.max()
                x -= math.log(np.exp(x).sum())
                of_exact.append([float(x[i]) for i in ids])
                tops.append(int(x.argmax()))
            self.assertEqual(tops, document["top"])
        exact, other = golden["exact"], golden["llama.cpp"]
        ours, theirs = binned_kl(exact, of_exact), binned_kl(exact, [log_q for _, log_q in other])
        self.assertLess(ours, 1.1 * theirs, "farther from the exact result than llama.cpp")
        agree = sum(t == e[0][0] for t, e in zip(tops, exact)) / len(tops)
        peer = sum(w == e[0][0] for (w, _), e in zip(other, exact)) / len(tops)
        self.assertGreater(agree, peer - 0.005, "the winner differs from the exact one more often than llama.cpp's")
        print(f"{name}: KL to the exact result {ours:.2e}, llama.cpp {theirs:.2e}; same winner {100 * agree:.1f} %, llama.cpp {100 * peer:.1f} %")

    def test_smollm2(self):
        self.check("smollm2")

    def test_gemma3(self):
        self.check("gemma3")


if __name__ == "__main__":
    unittest.main()
