"""--matmul blas: refused by name where the build has no OpenBLAS; else near the native result, and labelled as not bit-stable everywhere.

RIDGE_BIN names the program. Runs on a tiny random model (needs the gguf package).
"""
import array
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
IDS = ",".join(str(1 + i % 37) for i in range(48))  # enough tokens for BLAS


@unittest.skipIf(tiny_model is None, MISSING)
class MatMul(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.model = os.path.join(cls.folder, "model.gguf")
        tiny_model.write_tiny_model(cls.model, kind="Q8_0")
        cls.probe = cls.ridge("logits", "--ids", IDS, "--json", "--matmul", "blas")

    @classmethod
    def ridge(cls, command, *arguments):
        return subprocess.run([RIDGE, command, "-m", cls.model, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)

    def need_blas(self):
        if self.probe.returncode:
            self.assertIn("this build has no BLAS", self.probe.stderr)
            self.skipTest("this build has no OpenBLAS (apt install libopenblas-dev, then build again)")

    def logits(self, *arguments):
        path = os.path.join(self.folder, "out.f32")
        run = self.ridge("logits", "--ids", IDS, "-o", path, "--json", *arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        values = array.array("f")
        with open(path, "rb") as file:
            values.frombytes(file.read())
        return values, json.loads(run.stdout)["hash"]

    def test_without_the_library_the_value_is_refused_with_the_remedy(self):
        if self.probe.returncode == 0:
            self.skipTest("this build has OpenBLAS")
        self.assertEqual(self.probe.returncode, 1)
        self.assertIn("--matmul", self.probe.stderr)
        self.assertIn("libopenblas", self.probe.stderr)
        self.assertEqual(len(self.probe.stderr.splitlines()), 1)

    def test_wrong_values_are_wrong_usage(self):
        for command, more in (("logits", ["--ids", "1,2"]), ("bench", []), ("run", ["-p", "a"])):
            run = self.ridge(command, *more, "--matmul", "mkl")
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn("--matmul", run.stderr)

    def test_native_is_labelled_bit_stable(self):
        run = self.ridge("run", "-p", "a", "-n", "1", "--json")
        config = json.loads(run.stdout)["config"]
        self.assertEqual((config["matmul"], config["bit_stable"]), ("native", True))
        self.assertNotIn("bit-stable", run.stderr)

    def test_blas_is_near_the_native_result(self):
        self.need_blas()
        native, native_hash = self.logits()
        blas, blas_hash = self.logits("--matmul", "blas")
        self.assertNotEqual(native_hash, blas_hash)  # it really ran
        scale = max(abs(x) for x in native)
        self.assertLess(max(abs(a - b) for a, b in zip(native, blas)), 0.05 * scale)

    def test_few_tokens_stay_native(self):
        self.need_blas()
        hashes = [json.loads(self.ridge("logits", "--ids", "1,2,3", "--json", *more).stdout)["hash"] for more in ([], ["--matmul", "blas"])]
        self.assertEqual(hashes[0], hashes[1])

    def test_the_label_is_everywhere(self):
        self.need_blas()
        run = self.ridge("run", "-p", "a", "-n", "1", "--temp", "0", "--json", "--matmul", "blas")
        document = json.loads(run.stdout)
        self.assertEqual((document["config"]["matmul"], document["config"]["bit_stable"]), ("blas", False))
        self.assertIn("openblas.sgemm", [entry["kernel"] for entry in document["plan"]])
        self.assertIn("not bit-stable", run.stderr)
        self.assertIn("not bit-stable", self.ridge("run", "-p", "a", "-n", "1", "--matmul", "blas").stderr.splitlines()[-1])
        rows = json.loads(self.ridge("bench", "-p", "40", "-n", "0", "-r", "1", "-o", "json", "--matmul", "blas").stdout)
        self.assertEqual(rows[0]["matmul"], "blas")


if __name__ == "__main__":
    unittest.main()
