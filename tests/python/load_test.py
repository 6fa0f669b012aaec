"""`ridge load` against a stub server that stalls once, fails, or answers oddly, and against `ridge serve`.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/load_test.py
"""
import asyncio
import csv
import json
import os
import subprocess
import tempfile
import threading
import time
import unittest

RIDGE = os.environ.get("RIDGE_BIN", "build/release/bin/ridge")


class Stub:
    """Streams `tokens` chunks to each request. stall: (request number, seconds) in which the whole server stands still."""

    def __init__(self, tokens=2, stall=None, mode="good", usage=True, warmup=0, at_once=1):
        self.tokens, self.stall, self.mode, self.usage, self.warmup, self.at_once = tokens, stall, mode, usage, warmup, at_once
        self.requests, self.bodies, self.most, self.now = 0, [], 0, 0
        ready = threading.Event()
        self.loop = asyncio.new_event_loop()

        async def main():
            self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
            self.port = self.server.sockets[0].getsockname()[1]
            ready.set()

        def run():
            asyncio.set_event_loop(self.loop)
            self.loop.create_task(main())
            self.loop.run_forever()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert ready.wait(120)
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self):
        def end():
            self.server.close()
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.call_later(0.01, self.loop.stop)

        self.loop.call_soon_threadsafe(end)
        self.thread.join(10)
        self.loop.close()

    async def serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0)
                body = await reader.readexactly(length)
                if head.startswith("GET /v1/models ") and self.mode == "endless list":
                    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                    while True:
                        writer.write(b" " * 65536)
                        await writer.drain()
                elif head.startswith("GET /v1/models "):
                    text = json.dumps({"data": [{"id": "stub"}]}).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
                else:
                    await self.answer(json.loads(body), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, body, writer):
        self.requests += 1
        self.bodies.append(body)
        number = self.requests
        self.now += 1
        self.most = max(self.most, self.now)
        if self.stall and number == self.stall[0]:
            time.sleep(self.stall[1])  # not asyncio's: nobody is served
        if self.mode == "slow":
            await asyncio.sleep(0.02)
            # The first after the warm-up are answered when all are there that may be at once: they need not come within a time.
            end = time.monotonic() + 120
            while number > self.warmup and self.most < self.at_once and time.monotonic() < end:
                await asyncio.sleep(0.005)
        self.now -= 1
        if self.mode == "fails" or (self.mode == "fails later" and number % 2 == 1 and number > 1):
            text = b'{"error": {"message": "out of order"}}'
            writer.write(b"HTTP/1.1 500 No\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

        def event(text):
            data = b"data: " + text + b"\n\n"
            half = len(data) // 2  # chunks of HTTP are not events
            writer.write(b"%x\r\n%s\r\n%x\r\n%s\r\n" % (half, data[:half], len(data) - half, data[half:]))

        event(b'{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}')
        while self.mode == "endless line":
            writer.write(b"%x\r\n%s\r\n" % (65536, b"d" * 65536))
            await writer.drain()
        for _ in range(self.tokens):
            event(b'{"choices": [{"index": 0, "delta": {"content": "x"}}]}')
        if self.usage:
            tokens = {"negative": -5, "huge": 1e300}.get(self.mode, self.tokens)
            event(json.dumps({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": tokens}}).encode())
        if not (self.mode == "no end" and number > 1):
            event(b"[DONE]")
        writer.write(b"0\r\n\r\n")


def run(*args, status=0):
    done = subprocess.run([RIDGE, "load", *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    if done.returncode != status:
        raise AssertionError(f"{args}: status {done.returncode}, {done.stderr.decode()}")
    return done


class Load(unittest.TestCase):
    def stub(self, **options):
        stub = Stub(**options)
        self.addCleanup(stub.close)
        return stub

    def load(self, stub, *args):
        return json.loads(run(stub.url, *args, "--json").stdout)

    def test_a_stall_shows_in_what_counts_from_the_schedule(self):
        """The server stands still once, for 4 s; 2 requests notice while they are under way, and some 1000 because they had to wait."""
        stub = self.stub(stall=(100, 4))
        d = self.load(stub, "--rate", "250", "--arrivals", "constant", "--concurrency", "2", "--requests", "1200", "--max-tokens", "2")
        self.assertEqual((d["completed"], d["failed"], d["loop"]), (1200, 0, "open"))
        for name in ("ttft_ms", "e2e_ms"):
            scheduled, sent = d[name]["scheduled"], d[name]["sent"]
            self.assertGreater(scheduled["p99"], 3900)  # that of the twelve that waited longest
            self.assertLess(sent["p99"], 2500)  # a busy machine may hold some up besides, but not so many for so long
            self.assertGreater(sent["max"], 3900)
            self.assertGreaterEqual(scheduled["max"], sent["max"])
        self.assertGreater(d["held"], 50)
        self.assertLessEqual(stub.most, 2)
        self.assertGreater(d["client"]["cpu_percent"], 0)
        self.assertGreater(d["client"]["longest_turn_ms"], 0)
        self.assertIsNotNone(d["client"]["dispatch_ms"]["max"])

    def test_without_a_limit_both_counts_see_it(self):
        stub = self.stub(stall=(20, 0.5))
        d = self.load(stub, "--rate", "200", "--requests", "100", "--max-tokens", "2")
        self.assertEqual(d["held"], 0)
        self.assertGreater(d["ttft_ms"]["sent"]["p90"], 100)

    def test_closed_loop_keeps_so_many_in_flight(self):
        stub = self.stub(mode="slow", tokens=3, warmup=2, at_once=4)
        d = self.load(stub, "--concurrency", "4", "--requests", "40", "--warmup", "2")
        self.assertEqual((d["completed"], d["loop"], d["rate"], d["model"]), (40, "closed", None, "stub"))
        self.assertEqual(stub.requests, 42)
        self.assertEqual(stub.most, 4)
        self.assertEqual((d["output_tokens"], d["prompt_tokens"], d["tokens_from"]), (120, 440, "usage"))
        self.assertEqual(d["gap_ms"]["n"], 80)
        self.assertGreater(d["ttft_ms"]["sent"]["min"], 15)
        self.assertIsNone(d["ttft_ms"]["sent"]["p90"])
        self.assertIsNotNone(d["ttft_ms"]["sent"]["p75"])
        prompts = [json.dumps(b["messages"]) for b in stub.bodies]
        self.assertEqual(len(set(prompts)), 42)
        self.assertTrue(all(b["stream"] and b["stream_options"]["include_usage"] for b in stub.bodies))

    def test_goals_rows_and_prompts(self):
        stub = self.stub(tokens=1, usage=False)
        with tempfile.TemporaryDirectory() as folder:
            path, rows = os.path.join(folder, "prompts.jsonl"), os.path.join(folder, "rows.csv")
            with open(path, "w", encoding="utf-8") as file:
                file.write('first\n{"prompt": "second"}\n')
            d = self.load(stub, "--requests", "5", "--warmup", "0", "--dataset", path, "--completions", "--csv", rows, "--goodput", "ttft:60000,e2e:0.000001", "--model", "m")
            self.assertEqual([b["prompt"] for b in stub.bodies], ["first", "second", "first", "second", "first"])
            self.assertEqual(d["goodput"]["share"], 0)
            self.assertEqual(self.load(stub, "--requests", "3", "--goodput", "ttft:60000")["goodput"]["share"], 1)
            self.assertEqual(d["tokens_from"], "chunks")
            with open(rows, encoding="utf-8") as file:
                lines = list(csv.DictReader(file))
            self.assertEqual(len(lines), 5)
            self.assertTrue(all(float(r["scheduled_s"]) <= float(r["sent_s"]) <= float(r["first_token_s"]) <= float(r["done_s"]) for r in lines))

    def test_a_trace_is_replayed(self):
        stub = self.stub(tokens=1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.jsonl")
            with open(path, "w", encoding="utf-8") as file:
                file.write('{"timestamp": 5000, "prompt": "first", "output_length": 3}\n{"at_s": 5.1}\n5.3\n')
            d = self.load(stub, "--trace", path, "--warmup", "0", "--completions", "--max-tokens", "9")
            self.assertEqual((d["loop"], d["arrivals"], d["trace"], d["rate"], d["completed"]), ("open", "trace", path, None, 3))
            self.assertEqual([b["max_tokens"] for b in stub.bodies], [3, 9, 9])
            self.assertEqual(stub.bodies[0]["prompt"], "first")
            self.assertGreater(d["duration_s"], 0.3)
            self.assertEqual(self.load(stub, "--trace", path, "--requests", "2")["completed"], 2)
            for args, word in ((["--rate", "3"], "--rate"), (["--arrivals", "constant"], "--arrivals"), (["--requests", "4"], "3 at most")):
                self.assertIn(word, run(stub.url, "--trace", path, *args, status=2).stderr.decode())
            with open(path, "a", encoding="utf-8") as file:
                file.write('{"at_s": 5, "max_tokens": 3}\n')
            self.assertIn(path + ", line 4", run(stub.url, "--trace", path, status=1).stderr.decode())
            with open(path, "w", encoding="utf-8") as file:
                file.write('{"timestamp": 0, "input_length": 50}\n')
            self.assertIn("--tokenizer", run(stub.url, "--trace", path, status=2).stderr.decode())

    def test_failures_are_counted_and_named(self):
        d = self.load(self.stub(mode="fails later"), "--requests", "10")
        self.assertEqual((d["completed"], d["failed"]), (5, 5))
        self.assertEqual(d["errors"], [{"message": "HTTP 500: out of order", "count": 5}])
        done = run(self.stub(mode="no end").url, "--requests", "4", status=1)
        self.assertIn("ended without [DONE]", done.stderr.decode())
        done = run(self.stub(mode="fails").url, "--requests", "4", status=1)
        self.assertIn("out of order", done.stderr.decode())

    def test_a_usage_that_cannot_be_is_not_believed(self):
        for mode, told in (("negative", "completion_tokens -5"), ("huge", "completion_tokens 1e+300")):
            d = self.load(self.stub(mode=mode, tokens=3), "--requests", "4")
            self.assertEqual((d["output_tokens"], d["tokens_from"], d["prompt_tokens"]), (12, "chunks", 44))
            self.assertEqual(d["usage_not_believed"], [{"what": told, "count": 4}])
        self.assertIn("not believed", run(self.stub(mode="negative").url, "--requests", "2").stdout.decode())

    def test_answers_without_end_are_broken_off(self):
        self.assertIn("4 MiB at most", run(self.stub(mode="endless list").url, status=1).stderr.decode())
        self.assertIn("a line of the stream above 4 MiB", run(self.stub(mode="endless line").url, "--requests", "1", "--warmup", "0", status=1).stderr.decode())

    def test_bad_settings_are_refused(self):
        self.assertIn("does not answer", run("http://127.0.0.1:9", status=1).stderr.decode())
        for args in (["--requests", "0"], ["--arrivals", "sometimes"], ["--goodput", "fast"], ["--rate", "-1"]):
            self.assertIn(args[0], run("http://127.0.0.1:9", *args, status=2).stderr.decode())

    def test_table_for_people(self):
        text = run(self.stub().url, "--requests", "12").stdout.decode()
        self.assertRegex(text, r"(?m)^first token, from schedule +12 ")
        self.assertIn("client: ", text)
        self.assertIn("too few samples", text)


class OnRidge(unittest.TestCase):
    def test_ridge_serve(self):
        try:
            from serving import Server
            from tiny_model import CHATML, write_tiny_model
        except ImportError as error:
            self.skipTest(f"writes a model with the gguf package: {error}")
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "tiny.gguf")
            write_tiny_model(model, chat_template=CHATML, context=1024)
            with Server(model, "-np", "4") as server:
                done = run(f"http://127.0.0.1:{server.port}", "--concurrency", "4", "--requests", "16", "--max-tokens", "8", "--prompt-words", "8", "--json")
        d = json.loads(done.stdout)
        self.assertEqual((d["completed"], d["failed"]), (16, 0))
        self.assertEqual(d["tokens_from"], "usage")
        self.assertGreater(d["output_tokens"], 0)
        self.assertLessEqual(d["output_tokens"], 16 * 8)
        self.assertGreater(d["prompt_tokens"], 16 * 8)

    def test_tokens_are_counted_twice(self):
        """By the server and by the tokenizer of its model; a stub that says 11 for every prompt is told apart."""
        try:
            from serving import Server
            from tiny_model import CHATML, write_tiny_model
        except ImportError as error:
            self.skipTest(f"writes a model with the gguf package: {error}")
        with tempfile.TemporaryDirectory() as folder:
            model, trace = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "trace.jsonl")
            write_tiny_model(model, chat_template=CHATML, context=1024)
            with open(trace, "w", encoding="utf-8") as file:
                file.write('{"at_s": 0, "input_length": 80}\n{"at_s": 0.01, "input_length": 120}\n')
            with Server(model, "-np", "4") as server:
                url = f"http://127.0.0.1:{server.port}"
                own = ["--tokenizer", model, "--max-tokens", "4", "--json"]
                for more, want in ((["--requests", "4", "--prompt-tokens", "300"], 1200), (["--requests", "3", "--completions", "--prompt-tokens", "90"], 270),
                                   (["--trace", trace], 200)):
                    d = json.loads(run(url, *own, *more).stdout)
                    counts = d["token_counts"]
                    self.assertEqual((d["prompt_tokens"], counts["prompt_own"], counts["prompt_usage"]), (want, want, want), more)
                    self.assertEqual([f for f in counts["flags"] if "prompts" in f], [])
                    self.assertEqual(counts["prompts"], d["completed"])
            self.assertIn("at least", run(url, "--tokenizer", model, "--prompt-tokens", "3", status=2).stderr.decode())
            stub = Stub()
            self.addCleanup(stub.close)
            d = json.loads(run(stub.url, "--tokenizer", model, "--prompt-tokens", "100", "--requests", "3", "--json").stdout)
            self.assertEqual((d["token_counts"]["prompt_own"], d["token_counts"]["prompt_usage"]), (300, 33))
            self.assertEqual(len([f for f in d["token_counts"]["flags"] if f.startswith("3 of 3 prompts")]), 2)
            self.assertIn("COUNTS DIFFER", run(stub.url, "--tokenizer", model, "--requests", "3").stdout.decode())
            self.assertIn("--tokenizer", run(stub.url, "--prompt-tokens", "100", status=2).stderr.decode())
            self.assertIsNone(json.loads(run(stub.url, "--requests", "2", "--json").stdout)["token_counts"])


if __name__ == "__main__":
    unittest.main()
