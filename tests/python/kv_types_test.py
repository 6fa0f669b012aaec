"""-ctk, -ctv and -fa: each has an effect, config says so, the bits follow the contract, and what cannot be is refused by name.

RIDGE_BIN names the program. Runs on tiny random models (needs the gguf package).
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import tiny_model
    MISSING = ""
except ImportError as error:
    tiny_model, MISSING = None, f"needs the Python package {error.name}"

RIDGE = os.environ.get("RIDGE_BIN", os.path.abspath("build/release/bin/ridge"))
TEXT = "The quick brown fox jumps over the lazy dog. " * 14  # more than two splits of the KV
# type -> bytes of 32 values
TYPES = {"f32": 128, "f16": 64, "bf16": 64, "q8_0": 34, "q4_0": 18}


def ridge(*arguments):
    return subprocess.run([RIDGE, *arguments], capture_output=True, timeout=300, stdin=subprocess.DEVNULL)


@unittest.skipIf(tiny_model is None, MISSING)
class KvTypesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.narrow, cls.model = (os.path.join(cls.folder, name) for name in ("narrow.gguf", "model.gguf"))
        tiny_model.write_tiny_model(cls.narrow)
        with unittest.mock.patch.object(tiny_model, "HEAD_DIM", 32):
            tiny_model.write_tiny_model(cls.model, context=2048)

    def document(self, *arguments):
        run = ridge(*arguments, "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def test_each_has_an_effect_and_keeps_the_contract(self):
        seen = {}
        settings = [["-ctk", k, "-ctv", v] for k, v in (("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "f16"), ("f16", "q4_0"))]
        settings += [["-fa", "off"], ["-fa", "off", "-ctk", "q8_0", "-ctv", "q8_0"]]
        for setting in settings:
            want = self.document("logits", "-m", self.model, "-p", TEXT, *setting)
            self.assertEqual(want["nan_rows"], 0)
            self.assertNotIn(want["hash"], seen, f"{setting} has no effect")
            seen[want["hash"]] = setting
            for more in (["-t", "1"], ["-t", "3", "-ub", "61", "--kv-page", "16"], ["--kv-page", "512"], ["--isa", "scalar"]):
                with self.subTest(setting=setting, more=more):
                    self.assertEqual(self.document("logits", "-m", self.model, "-p", TEXT, *setting, *more)["hash"], want["hash"])

    def test_config_says_what_was_chosen(self):
        values = tiny_model.LAYERS * tiny_model.KV_HEADS  # blocks of 32 values of K, and as many of V
        for k, v in (("f16", "f16"), ("q8_0", "f32"), ("bf16", "q4_0")):
            config = self.document("run", "-m", self.model, "-p", "a", "-n", "1", "-ctk", k, "-ctv", v)["config"]
            self.assertEqual((config["type_k"], config["type_v"]), (k, v))
            self.assertEqual(config["kv_bytes_per_token"], values * (TYPES[k] + TYPES[v]))
        for value, shown in (("on", "on"), ("auto", "on"), ("off", "off")):
            config = self.document("run", "-m", self.model, "-p", "a", "-n", "1", "-fa", value)["config"]
            self.assertEqual(config["flash_attn"], shown)
            self.assertEqual("other bits" in config["flash_attn_reason"], shown == "off")
        # As the course types it: a switch, with another flag behind it or nothing.
        for args in (["-fa", "--cache-type-k", "q8_0", "--cache-type-v", "q8_0"], ["--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "-fa"], ["--cache-type-k", "q8_0", "-ctv", "q8_0", "--flash-attn"]):
            config = self.document("run", "-m", self.model, "-p", "a", "-n", "1", *args)["config"]
            self.assertEqual((config["flash_attn"], config["type_k"], config["type_v"]), ("on", "q8_0", "q8_0"))

    def test_bench_says_what_it_ran(self):
        rows = self.document("bench", "-m", self.model, "-p", "4", "-n", "0", "-r", "1", "-ngl", "0,99")  # as llama-bench takes it
        self.assertEqual([row["n_gpu_layers"] for row in rows], [0])
        row = self.document("bench", "-m", self.model, "-p", "0", "-n", "2", "-d", "300", "-r", "1", "-ctk", "q8_0", "-ctv", "q4_0", "-fa", "off")[0]
        self.assertEqual((row["type_k"], row["type_v"], row["flash_attn"], row["n_depth"]), ("q8_0", "q4_0", False, 300))

    def test_heads_that_are_no_multiple_of_a_block_are_refused(self):
        for flag in ("-ctk", "-ctv"):
            for kind in ("q8_0", "q4_0"):
                run = ridge("logits", "-m", self.narrow, "-p", "a", flag, kind)
                self.assertEqual(run.returncode, 1)
                text = run.stderr.decode()
                for word in (flag, kind, "16 channels", f"{flag} f16"):
                    self.assertIn(word, text)
        self.assertEqual(ridge("logits", "-m", self.narrow, "-p", "a", "-ctk", "f16").returncode, 0)


if __name__ == "__main__":
    unittest.main()
