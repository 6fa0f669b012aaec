"""ridge roofline, from outside: the document, the cache, the plot, the prediction, wrong command lines. Short measurements; no figure is asserted."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import tiny_model
    MISSING = ""
except ImportError as error:
    tiny_model, MISSING = None, f"needs the Python package {error.name}"

RIDGE = os.environ.get("RIDGE_BIN", os.path.abspath("build/release/bin/ridge"))


def positive(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


class Roofline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run = cls.ridge("roofline", "--short", "--json", "--svg", os.path.join(cls.folder, "plot.svg"))
        assert run.returncode == 0, run.stderr
        cls.document = json.loads(run.stdout)

    @classmethod
    def ridge(cls, *arguments, **env):
        env = {**os.environ, "XDG_CACHE_HOME": os.path.join(cls.folder, "cache"), **env}
        return subprocess.run([RIDGE, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=300, env=env)

    def cache_file(self, fingerprint=None):
        return os.path.join(self.folder, "cache", "ridge", f"roofline-{fingerprint or self.document['fingerprint']}.json")

    def keep(self, **changes):
        """Leaves the short measurement in the cache as if it had been a full one of a quiet machine."""
        os.makedirs(os.path.dirname(self.cache_file()), exist_ok=True)
        with open(self.cache_file(), "w", encoding="utf-8") as file:
            json.dump({**self.document, "short": False, "quiet": True, "quiet_reasons": [], **changes}, file)
        self.addCleanup(lambda: os.path.exists(self.cache_file()) and os.remove(self.cache_file()))

    def test_document(self):
        d = self.document
        self.assertRegex(d["fingerprint"], r"^[0-9a-f]{16}$")
        self.assertIsInstance(d["quiet"], bool)
        self.assertEqual(d["quiet"], d["quiet_reasons"] == [])
        self.assertIn(str(len(os.sched_getaffinity(0))), d["read_gbps"])
        self.assertEqual(set(d["read_gbps"]), set(d["read_patterns"]))
        for name in ("read_gbps", "int8_gops", "fp32_gflops"):
            self.assertTrue(d[name] and all(positive(v) for v in d[name].values()), name)
        self.assertTrue(all(v is None or positive(v) for v in d["bf16_gflops"].values()))
        doctor = json.loads(self.ridge("doctor", "--json").stdout)
        self.assertEqual(list(d["int8_gops"]), [isa["name"] for isa in doctor["isa_targets"] if isa["supported"]])
        for kind in "F16 BF16 Q8_0 Q4_0 Q4_K Q6_K".split():
            self.assertTrue(all(positive(d["formats"][kind][k]) for k in ("gbps_memory", "gbps_l2", "gbps_decode")), kind)
        kinds = {(a["kv_type"], a["head_dim"], a["group"]) for a in d["attention"]}
        self.assertEqual(kinds, {(t, h, g) for t in ("f16", "bf16", "f32", "q8_0", "q4_0") for h in (64, 128) for g in (1, 2, 4, 8)})
        self.assertTrue(all(positive(a["tokens_per_s"]) for a in d["attention"]))
        self.assertTrue(positive(d["dispatch_us"]))
        self.assertTrue(d["short"])
        self.assertFalse(d["cached"])
        self.assertIsNone(d["prediction"])

    def test_svg_is_xml(self):
        root = xml.etree.ElementTree.parse(os.path.join(self.folder, "plot.svg")).getroot()
        self.assertTrue(root.tag.endswith("svg"))
        self.assertGreater(len(list(root.iter("{http://www.w3.org/2000/svg}line"))), 10)

    def test_a_short_measurement_is_not_kept(self):
        self.assertFalse(os.path.exists(self.cache_file()))

    def test_what_is_kept_is_shown_again(self):
        self.keep(measured_at="2001-02-03T04:05:06Z")
        d = json.loads(self.ridge("roofline", "--json").stdout)
        self.assertTrue(d["cached"])
        self.assertEqual(d["measured_at"], "2001-02-03T04:05:06Z")
        text = self.ridge("roofline").stdout.decode()
        self.assertIn("Kept since 2001-02-03T04:05:06Z", text)
        self.assertIn("Q4_K", text)

    def test_small_peaks_have_digits(self):
        self.keep(fp32_gflops={**self.document["fp32_gflops"], "scalar": 0.3125})
        self.assertRegex(self.ridge("roofline").stdout.decode(), r"(?m)^scalar .* 0\.312$")

    def test_a_damaged_file_is_told(self):
        self.keep()
        with open(self.cache_file(), "w", encoding="utf-8") as file:
            file.write("{")
        # The note comes before the measurement, which takes too long for a test.
        run = subprocess.Popen([RIDGE, "roofline", "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env={**os.environ, "XDG_CACHE_HOME": os.path.join(self.folder, "cache")})
        self.addCleanup(run.stderr.close)
        line = run.stderr.readline().decode()
        run.kill()
        run.wait()
        self.assertIn("damaged", line)
        self.assertIn(self.cache_file(), line)

    @unittest.skipIf(tiny_model is None, MISSING)
    def test_prediction_for_a_model(self):
        path = os.path.join(self.folder, "tiny.gguf")
        tiny_model.write_tiny_model(path)
        self.keep()
        run = self.ridge("roofline", "-m", path, "-c", "200", "-ub", "64", "--json", "-t", str(len(os.sched_getaffinity(0))))
        p = json.loads(run.stdout)["prediction"]
        self.assertEqual((p["n_context"], p["n_ubatch"]), (200, 64))
        for phase in ("decode", "prefill"):
            self.assertIn(p[phase]["bound"], ("memory", "unpack", "arithmetic"))
            rates = [p[phase][k] for k in ("memory_ts", "unpack_ts", "arithmetic_ts") if p[phase][k]]
            self.assertEqual(p[phase]["ceiling_ts"], min(rates))
        # Weights once, and 200 tokens of K and V of 2 layers, 2 heads, 16 channels, 2 bytes.
        layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128  # Q and output, K and V, the feed-forward
        weights = 4 * (2 * layer + len(tiny_model.vocabulary()[0]) * 64)
        self.assertAlmostEqual(p["decode"]["bytes_read"], weights + 200 * 2 * 2 * 2 * 16 * 2, delta=0.01 * weights)
        self.assertIn("at most", self.ridge("roofline", "-m", path).stdout.decode())

    @unittest.skipIf(tiny_model is None, MISSING)
    def test_run_and_bench_name_the_bound(self):
        path = os.path.join(self.folder, "tiny2.gguf")
        tiny_model.write_tiny_model(path)
        run = ("run", "-m", path, "-p", "the cat", "-n", "8", "--temp", "0", "--json")
        bench = ("bench", "-m", path, "-p", "16", "-n", "8", "-r", "2", "-o", "json")
        before = json.loads(self.ridge(*run).stdout)
        self.assertIsNone(before["read_ceiling_gbps"])
        self.assertIsNone(before["bound"])
        self.assertIn("ridge roofline", before["ceiling_reason"])
        for row in json.loads(self.ridge(*bench).stdout):
            self.assertIsNone(row["read_ceiling_gbps"])
            self.assertIn("ridge roofline", row["ceiling_reason"])
        self.keep()
        after = json.loads(self.ridge(*run).stdout)
        self.assertTrue(positive(after["read_ceiling_gbps"]))
        self.assertIn(after["bound"], ("memory", "unpack", "arithmetic", "overhead"))
        self.assertIsNone(after["ceiling_reason"])
        for row in json.loads(self.ridge(*bench).stdout):
            self.assertTrue(positive(row["read_ceiling_gbps"]))
            self.assertIn(row["bound"], ("memory", "unpack", "arithmetic", "overhead"))
            self.assertTrue(positive(row["ceiling_share"]))
        # The formats are those of one ISA: for another nothing is made up.
        other = json.loads(self.ridge(*run, "--isa", "scalar").stdout)
        if self.document["isa"] != "scalar":
            self.assertIsNone(other["bound"])
            self.assertIn("scalar", other["ceiling_reason"])

    def test_wrong_command_lines(self):
        for arguments, status in ((("-c", "0"), 2), (("-ub", "-1"), 2), (("-m", "/nowhere.gguf"), 1), (("--frobnicate",), 2)):
            run = self.ridge("roofline", *arguments)
            self.assertEqual(run.returncode, status, arguments)
            self.assertEqual(run.stdout, b"")
            self.assertRegex(run.stderr.decode(), r"(?m)^error: ")

    def test_svg_to_where_nothing_can_be_written(self):
        self.keep()
        run = self.ridge("roofline", "--svg", "/nowhere/plot.svg")
        self.assertEqual(run.returncode, 1)
        self.assertIn("/nowhere", run.stderr.decode())


if __name__ == "__main__":
    unittest.main()
