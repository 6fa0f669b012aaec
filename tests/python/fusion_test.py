"""--fusion on every family: the same bits whatever is fused, and inspect --graph says what that is.

RIDGE_BIN names the program. Runs on tiny random models (needs the gguf package).
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
PASSES = ["qkv", "gate-up", "residual", "rope-kv", "norm-quantize"]
TEXT = "The quick brown fox jumps over the lazy dog, and then the dog gets up."


def ridge(*arguments):
    return subprocess.run([RIDGE, *arguments], capture_output=True, timeout=120, stdin=subprocess.DEVNULL)


@unittest.skipIf(tiny_model is None, MISSING)
class FusionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.models = {}
        for family in tiny_model.FAMILIES:
            for kind in ("F32", "Q4_1"):
                cls.models[family, kind] = os.path.join(cls.folder, f"{family}-{kind}.gguf")
                tiny_model.write_tiny_model(cls.models[family, kind], architecture=family, kind=kind)

    def document(self, *arguments):
        run = ridge(*arguments, "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def test_the_bits_stay(self):
        settings = [["--fusion", "on", *more] for more in ([], ["-t", "1"], ["-t", "3", "-ub", "7"], ["--isa", "scalar"], ["-ub", "1"])]
        settings += [["--fusion", prefix + name] for name in PASSES for prefix in ("", "no-")]
        hashes = set()
        for (family, kind), path in self.models.items():
            want = self.document("logits", "-m", path, "-p", TEXT, "--fusion", "off")
            self.assertEqual(want["nan_rows"], 0)
            hashes.add(want["hash"])
            for setting in settings:
                with self.subTest(family=family, kind=kind, setting=setting):
                    self.assertEqual(self.document("logits", "-m", path, "-p", TEXT, *setting)["hash"], want["hash"])
        self.assertEqual(len(hashes), len(self.models))

    def test_config_and_plan_say_what_is_on(self):
        path = self.models["llama", "Q4_1"]
        for value, on in (("on", PASSES), ("off", []), ("residual,qkv", ["qkv", "residual"]), ("no-gate-up", ["qkv", "residual", "rope-kv", "norm-quantize"])):
            document = self.document("run", "-m", path, "-p", "a", "-n", "2", "--fusion", value)
            self.assertEqual(document["config"]["fusion"], on)
            fused = [e["op"].removeprefix("fused ") for e in document["plan"] if e["op"].startswith("fused ")]
            self.assertEqual(fused, on)
        self.assertEqual(self.document("run", "-m", path, "-p", "a", "-n", "2")["config"]["fusion"], PASSES)

    def test_unknown_names_are_refused_with_the_list(self):
        path = self.models["llama", "F32"]
        for command in (["run", "-p", "a", "-n", "1"], ["logits", "-p", "a"], ["bench"], ["batched-bench"], ["inspect", "--graph"]):
            for value in ("qvk", "", "qkv,", "on,qkv"):
                run = ridge(command[0], "-m", path, *command[1:], "--fusion", value)
                self.assertEqual(run.returncode, 2, (command, value, run.stderr))
                self.assertEqual(run.stdout, b"")
                line = run.stderr.decode()
                self.assertIn("--fusion", line)
                for name in PASSES if value else ("the value is empty",):
                    self.assertIn(name, line)

    def graph(self, family, *more):
        return self.document("inspect", self.models[family, "Q4_1"], "--graph", *more)

    def test_inspect_shows_passes_and_ops(self):
        layers = tiny_model.LAYERS
        whole = {"qkv": layers, "gate-up": layers, "residual": 2 * layers, "rope-kv": layers, "norm-quantize": 2 * layers + 1}
        matched = {"llama": whole, "qwen2": whole, "qwen3": whole,
                   "qwen3moe": {**whole, "gate-up": 0, "residual": layers}, "gemma3": {**whole, "residual": 0}}
        for family, want in matched.items():
            on, off = self.graph(family), self.graph(family, "--fusion", "off")
            self.assertEqual(on["architecture"], family)
            self.assertEqual({p["name"]: p["matched"] for p in on["passes"]}, want, family)
            self.assertEqual([p["name"] for p in on["passes"] if p["on"]], PASSES)
            self.assertTrue(all(p["does"] for p in on["passes"]))
            self.assertEqual([p["matched"] for p in off["passes"] if not p["on"]], [0] * len(PASSES))
            self.assertLess(len(on["ops"]), len(off["ops"]))
            self.assertEqual(sum(len(o["ops"]) for o in on["ops"]), len(off["ops"]))
            for what in ("bytes_read", "bytes_written", "flops"):
                self.assertAlmostEqual(on["cost"][what], off["cost"][what])
                self.assertAlmostEqual(sum(o["cost"][what] for o in on["ops"]), on["cost"][what])
            self.assertEqual(on["ops"][-1]["out"], [{"rows": "R", "cols": len(tiny_model.vocabulary()[0])}])

    def test_inspect_names_shapes(self):
        ops = self.graph("llama")["ops"]
        qkv = next(o for o in ops if o["pass"] == "qkv")
        kv = tiny_model.KV_HEADS * tiny_model.HEAD_DIM
        self.assertEqual([o["cols"] for o in qkv["out"]], [tiny_model.HEADS * tiny_model.HEAD_DIM, kv, kv])
        self.assertEqual(qkv["in"], [{"rows": "T", "cols": tiny_model.WIDTH}])
        self.assertEqual([w["name"] for w in qkv["weights"]], [f"blk.0.attn_{x}.weight" for x in "qkv"])
        self.assertEqual(qkv["weights"][0]["type"], "Q4_1")

    def test_inspect_in_words(self):
        run = ridge("inspect", self.models["llama", "Q4_1"], "--graph", "--fusion", "no-qkv")
        self.assertEqual(run.returncode, 0, run.stderr)
        text = run.stdout.decode()
        for name in PASSES:
            line = next(x for x in text.splitlines() if x.startswith(name + " "))
            self.assertIn(" off " if name == "qkv" else " on ", line)
        self.assertIn("matmul + matmul + gated_act", text)
        for wrong in (["--graph", "--tensor", "output.weight"], ["--fusion", "off"]):
            self.assertEqual(ridge("inspect", self.models["llama", "F32"], *wrong).returncode, 2)

    def test_op_times(self):
        document = self.document("run", "-m", self.models["llama", "Q4_1"], "-p", TEXT, "-n", "5", "--ignore-eos", "--op-times")
        times = document["op_times"]
        for phase, steps in (("prefill", 1), ("decode", 4)):
            part = {t["op"]: t for t in times if t["phase"] == phase}
            self.assertEqual(part["qkv attn_q"]["calls"], tiny_model.LAYERS * steps)
            self.assertEqual({t["steps"] for t in part.values()}, {steps})
            self.assertTrue(all(t["ms"] >= 0 for t in part.values()))
        self.assertLess(sum(t["ms"] for t in times), document["total_ms"])
        self.assertNotIn("op_times", self.document("run", "-m", self.models["llama", "Q4_1"], "-p", TEXT, "-n", "2"))

    def test_bench_takes_several(self):
        run = ridge("bench", "-m", self.models["llama", "Q4_1"], "-p", "8", "-n", "2", "-r", "1", "--fusion", "on", "--fusion", "qkv,residual", "-o", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([(r["fusion"], r["n_prompt"]) for r in json.loads(run.stdout)],
                         [("on", 8), ("on", 0), ("qkv,residual", 8), ("qkv,residual", 0)])


if __name__ == "__main__":
    unittest.main()
