"""ridge serve and bodies of megabytes: what cannot fit is refused without work, small requests do not wait for large ones, and the memory comes back."""
import json
import os
import select
import shutil
import socket
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import CHAT, SIGTERM, TEXT, Server, head, idle
try:
    import tiny_model
    MISSING = ""
except ImportError as error:
    tiny_model, MISSING = None, f"needs the Python package {error.name}"

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
MIB = 1 << 20


def resident(server):
    with open(f"/proc/{server.child.pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS"))


def settles(server, most_bytes, seconds=Server.PATIENCE_S):
    """The least resident memory that is seen, waited for until it is small enough."""
    end = time.monotonic() + seconds
    least = resident(server)
    while least > most_bytes and time.monotonic() < end:
        time.sleep(0.05)
        least = min(least, resident(server))
    return least


@unittest.skipIf(tiny_model is None, MISSING)
class Large(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.model = os.path.join(folder, "base.gguf")
        tiny_model.write_tiny_model(cls.model, context=100000, chat_template=TEMPLATE)

    def test_what_cannot_fit_is_refused_and_its_memory_comes_back(self):
        with Server(self.model, "-np", "2", "-c", "256") as server:
            for path, body in ((TEXT, {"prompt": "the", "max_tokens": 200}), (CHAT, {"messages": [{"role": "user", "content": "the"}]}), ("/tokenize", {"content": "the " * 5000})):
                self.assertEqual(server.post(path, body)[0], 200)
            before = resident(server)
            for text in ("the quick ", "a", " ", "<|im_end|>", "\u4e16\U0001f600"):
                text *= 16 * MIB // len(text.encode())
                for path, body, param in ((TEXT, {"prompt": ["the", text]}, "prompt"), (CHAT, {"messages": [{"role": "user", "content": "the"}, {"role": "user", "content": text}]}, "messages")):
                    with self.subTest(text=text[:4], path=path):
                        status, answer = server.post(path, json.dumps(body, ensure_ascii=False).encode())
                        self.assertEqual((status, answer["error"]["code"], answer["error"]["param"]), (400, "context_length_exceeded", param), answer)
                        self.assertRegex(answer["error"]["message"], "found at least [0-9]+ tokens, expected 256 tokens at most")
                        if path == CHAT:
                            self.assertIn("messages[1] is the longest", answer["error"]["message"])
                status, answer = server.post("/tokenize", json.dumps({"content": text}, ensure_ascii=False).encode())
                self.assertEqual((status, answer["error"]["param"]), (400, "content"), answer)
                self.assertIn("4194304 bytes", answer["error"]["message"])
            small = json.dumps({"messages": [{"role": "user", "content": "a"}] * 200000}).encode()
            self.assertEqual(server.post(CHAT, small)[1]["error"]["code"], "context_length_exceeded")
            self.assertLess(settles(server, before + 64 * MIB) - before, 64 * MIB)
            self.assertEqual(server.stop(SIGTERM)[0], 0)

    def test_a_body_is_not_kept_as_long_as_its_answer_takes(self):
        with Server(self.model, "-np", "8", "-c", "100000", "--kv-memory", "128MiB") as server:
            links = [server.open_stream(TEXT, {"prompt": "the", "max_tokens": 90000, "ignore_eos": True}) for _ in range(2)]
            server.until(lambda m: m["ridge:num_requests_running"] == 2)
            before = resident(server)
            for _ in range(6):
                data = json.dumps({"prompt": "quick", "max_tokens": 90000, "ignore_eos": True, "stream": True}).encode() + b" " * (30 * MIB)
                links.append(socket.create_connection(("127.0.0.1", server.port), timeout=Server.PATIENCE_S))
                links[-1].sendall(head(TEXT, len(data)) + data)
            server.until(lambda m: m["ridge:num_requests_running"] == 8)
            self.assertLess(settles(server, before + 90 * MIB) - before, 90 * MIB)
            for link in links:
                link.close()
            server.until(idle)

    def test_as_many_large_bodies_as_there_is_room_for_are_taken(self):
        """Twelve of 30 MiB that come side by side: 256 MiB hold eight, and who is refused makes room for the others."""
        with Server(self.model, "-np", "2", "-c", "256") as server:
            data = json.dumps({"prompt": "quick", "max_tokens": 1}).encode() + b" " * (30 * MIB)
            links = {socket.create_connection(("127.0.0.1", server.port), timeout=Server.PATIENCE_S): 0 for _ in range(12)}
            for link in links:
                link.sendall(head(TEXT, len(data)))
            sending = set(links)
            while sending:
                for link in sorted(sending, key=links.get):
                    if select.select([link], [], [], 0)[0]:  # refused already
                        sending.remove(link)
                        continue
                    links[link] += link.send(data[links[link]:links[link] + MIB // 4])
                    if links[link] == len(data):
                        sending.remove(link)
            statuses = sorted(int(link.recv(1 << 16).split()[1]) for link in links)
            self.assertEqual(statuses, [200] * 8 + [503] * 4)
            for link in links:
                link.close()
            self.assertEqual(server.stop(SIGTERM)[0], 0)

    def test_small_requests_do_not_wait_for_large_ones(self):
        with Server(self.model, "-np", "2", "-c", "256") as server:
            word = json.dumps({"content": "the" * (MIB * 4 // 3)}).encode()
            small = {"content": "the quick " * 4000}  # too long to be answered at once
            links = []
            for _ in range(8):
                links.append(socket.create_connection(("127.0.0.1", server.port), timeout=Server.PATIENCE_S))
                links[-1].sendall(head("/tokenize", len(word), more="Connection: close\r\n") + word[:-1])
            for link in links:  # all are there before the first is worked on
                link.sendall(word[-1:])
            self.assertEqual(server.post("/tokenize", small)[0], 200)
            answered = len(select.select(links, [], [], 0)[0])
            self.assertLess(answered, 5, "of eight long ones that came before")
            for link in links:
                got = link.makefile("rb").read()
                self.assertTrue(got.startswith(b"HTTP/1.1 200 "), got[:100])
                link.close()
            self.assertEqual(server.stop(SIGTERM)[0], 0)

    def test_names_are_short(self):
        with Server(self.model, "-np", "2", "-c", "256") as server:
            for field in ("user", "cache_salt"):
                self.assertEqual(server.post(TEXT, {"prompt": "the", "max_tokens": 1, field: "u" * 1024})[0], 200)
                status, answer = server.post(TEXT, {"prompt": "the", "max_tokens": 1, field: "u" * 1025})
                self.assertEqual((status, answer["error"]["param"]), (400, field), answer)


if __name__ == "__main__":
    unittest.main()
