"""`ridge diagnose` from outside: the document, what it refuses, and verdicts that do not depend on this machine's speed: a stub server that sleeps,
a client that is slow, a model that does not fit. Which part of a real model's time is the largest is not asserted."""
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import tiny_model
    MISSING = ""
except ImportError as error:
    tiny_model, MISSING = None, f"needs the Python package {error.name}"

RIDGE = os.environ.get("RIDGE_BIN", os.path.abspath("build/release/bin/ridge"))
NAMES = {"compute", "memory_bandwidth", "unpacking", "attention", "runtime_overhead", "power_thermal", "capacity"}


def ridge(*arguments):
    return subprocess.run([RIDGE, "diagnose", *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=300)


class Stub(http.server.ThreadingHTTPServer):
    """Says that its engine took `engine_s`, sleeps that long and `more_s` besides. told: which object tells it."""

    def __init__(self, engine_s, more_s=0.0, told="ridge", chunks=4):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.answer(b'{"data": [{"id": "stub"}]}', "application/json")

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(engine_s + more_s)
                end = {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": chunks}}
                if told == "ridge":
                    end["ridge"] = {"total_ms": 1000 * engine_s}
                if told == "timings":
                    end["timings"] = {"prompt_ms": 400 * engine_s, "predicted_ms": 600 * engine_s}
                events = [{"choices": [{"text": "x"}]}] * chunks + [end]
                text = "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"
                self.answer(text.encode(), "text/event-stream")

            def answer(self, body, kind):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Service(unittest.TestCase):
    def verdict(self, *arguments):
        run = ridge(*arguments, "--json", "--requests", "6")
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def test_a_server_that_sleeps(self):
        for told in ("ridge", "timings"):
            with Stub(0.1, more_s=0.4, told=told) as stub:
                d = self.verdict(stub.url)
            self.assertEqual((d["verdict"]["bottleneck"], d["verdict"]["cause"]), ("service", "server"), d["verdict"])
            self.assertGreater(d["shares"]["service"]["low"], 0.5)
            self.assertTrue(any("proxies" in a["action"] for a in d["actions"]))

    def test_a_slow_client(self):
        with Stub(0.05) as stub:
            d = self.verdict(stub.url, "--client-delay", "100")
        self.assertEqual((d["verdict"]["bottleneck"], d["verdict"]["cause"]), ("service", "client"), d["verdict"])
        self.assertGreater(d["http"]["client_share"], 0.5)

    def test_without_a_model_nothing_is_said_about_the_engine(self):
        with Stub(1.0) as stub:
            d = self.verdict(stub.url)
        self.assertEqual(d["verdict"]["bottleneck"], "undetermined")
        self.assertIsNone(d["decode"]["seconds"])
        self.assertIn("no model was given", d["not_tried"][0]["reason"])

    def test_a_server_that_tells_nothing(self):
        with Stub(0.01, told="nothing") as stub:
            run = ridge(stub.url, "--requests", "6")
        self.assertEqual(run.returncode, 1)
        self.assertIn(b"give the model with -m", run.stderr)

    def test_wrong_command_lines(self):
        for arguments in ([], ["-m", "x", "-p", "0"], ["-m", "x", "-r", "1"], ["-m", "x", "--client-delay", "-1"]):
            self.assertEqual(ridge(*arguments).returncode, 2, arguments)
        self.assertEqual(ridge("-m", "no-such-file.gguf").returncode, 1)
        self.assertEqual(ridge("http://127.0.0.1:9").returncode, 1)


@unittest.skipIf(MISSING, MISSING)
class Model(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.path = os.path.join(cls.folder, "tiny.gguf")
        tiny_model.write_tiny_model(cls.path, context=4096)

    def test_document(self):
        run = ridge("-m", self.path, "-p", "64", "-n", "8", "-r", "3", "-t", "1", "--isa", "scalar", "-ub", "16", "--requests", "6", "--time", "3600", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        d = json.loads(run.stdout)
        self.assertIn(d["verdict"]["bottleneck"], NAMES | {"service", "undetermined"})
        self.assertTrue(d["verdict"]["reason"])
        self.assertEqual(set(d["shares"]) - {"service"}, NAMES)
        for share in d["shares"].values():
            self.assertTrue(0 <= share["low"] <= share["median"] <= share["high"] <= 1, share)
        self.assertEqual((d["config"]["n_threads"], d["config"]["isa"], d["config"]["n_ubatch"]), (1, "scalar", 16))
        names = [r["intervention"] for r in d["decode"]["responses"]]
        self.assertIn("2 tokens a step", names)
        self.assertTrue(any(n.startswith("layers 2 -> 1") for n in names), names)
        for phase in ("prefill", "decode"):
            for r in d[phase]["responses"]:
                self.assertGreaterEqual(len(r["pairs"]), 6)
                self.assertEqual(set(r["factors"]), NAMES - {"power_thermal", "capacity"})
        causes = {(l["phase"], l["cause"]): l for l in d["levers"]}
        self.assertIn(("decode", "isa"), causes)
        self.assertEqual(causes[("prefill", "batch")]["action"], "-ub 512")
        # Where time is short, settings that can be kept come before all else.
        self.assertEqual([r["intervention"] for r in d["prefill"]["responses"]][:2], ["prompt chunk 16 -> 64", f"kernels scalar -> {causes[('decode', 'isa')]['action'].split()[1]}"])
        for lever in causes.values():
            self.assertEqual(lever["proved"], lever["realised_high"] < 0.98)
        skipped = {n["intervention"]: n["reason"] for n in d["not_tried"]}
        self.assertIn("core clock", skipped)
        self.assertIn("half the threads", skipped)
        self.assertEqual(d["http"]["engine_from"], "the server's own figures")

    def test_what_there_is_no_time_for_is_named(self):
        run = ridge("-m", self.path, "-p", "64", "-n", "2000", "-r", "100", "-t", "1", "--isa", "scalar", "--time", "1", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        d = json.loads(run.stdout)
        left_out = [n for n in d["not_tried"] if "--time" in n["reason"]]
        self.assertTrue(left_out, d["not_tried"])
        tried = {r["intervention"] for phase in ("prefill", "decode") for r in d[phase]["responses"]}
        self.assertFalse(tried & {n["intervention"] for n in left_out})
        self.assertIsNotNone(d["cpu_share"])  # what decides comes first
        self.assertIn("6 requests over HTTP", d["shortened"][-1]["what"])
        self.assertEqual(d["http"]["requests"], 6)
        for value in ("0", "1e9", "-1", "x"):
            self.assertEqual(ridge("-m", self.path, "--time", value).returncode, 2)

    def test_a_model_that_does_not_fit_is_capacity(self):
        run = ridge("-m", self.path, "-c", "1000000000", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        d = json.loads(run.stdout)
        self.assertEqual((d["verdict"]["bottleneck"], d["verdict"]["cause"]), ("capacity", "memory"))
        self.assertIn("GB", d["verdict"]["reason"])
        self.assertIsNone(d["decode"]["per_second"])
        self.assertIsNone(d["config"])

    def test_text(self):
        run = ridge("-m", self.path, "-p", "16", "-n", "4", "-r", "3", "--no-http")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue(run.stdout.startswith(b"bottleneck: "))
        self.assertIn(b"share of the time", run.stdout)
        self.assertIn(b"HTTP: --no-http", run.stdout)


if __name__ == "__main__":
    unittest.main()
