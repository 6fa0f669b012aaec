"""ridge serve --prefix-cache-file, from outside: what was said before a restart is found after it, with the same bits; a file that does not fit is
refused with the reason, and the server starts with an empty cache."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import RIDGE, SIGTERM, Server
try:
    import tiny_model
    MISSING = ""
except ImportError as error:
    tiny_model, MISSING = None, f"needs the Python package {error.name}"

TEXT = "/v1/completions"
PROMPT = "the quick the quick " * 5


@unittest.skipIf(tiny_model is None, MISSING)
class CacheFile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def model(self, family, seed=1):
        path = self.path(f"{family}-{seed}.gguf")
        if not os.path.exists(path):
            tiny_model.write_tiny_model(path, architecture=family, seed=seed)
        return path

    def server(self, model, saved, *more):
        page = [] if "--kv-page" in more else ["--kv-page", "16"]
        return Server(model, "-np", "2", "-c", "256", "--prefix-cache-file", saved, *page, *more)

    def ask(self, server, prompt, **more):
        status, answer = server.post(TEXT, {"prompt": prompt, "max_tokens": 24, "temperature": 0, "logprobs": 2, "ignore_eos": True, **more})
        self.assertEqual(status, 200, answer)
        return answer["choices"][0], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def stop(self, server):
        status, err = server.stop(SIGTERM)
        self.assertEqual(status, 0, err)
        return err

    def test_answers_after_a_restart_are_those_before_it_and_of_no_cache(self):
        for family, more in (("llama", []), ("llama", ["-ctk", "bf16", "-ctv", "f32"]), ("gemma3", []), ("qwen35", []), ("llama", ["-ub", "8"])):
            with self.subTest(family=family, more=more):
                model, saved = self.model(family), self.path(f"{family}{len(more)}.prefixes")
                if os.path.exists(saved):
                    os.remove(saved)
                with self.server(model, saved, *more) as first:
                    self.assertEqual(first.document["config"]["prefix_cache_file"]["reason"], "there is no such file yet")
                    self.ask(first, PROMPT, cache_salt="a")
                    self.assertIn("saved to", self.stop(first))
                longer = PROMPT + "and then the"
                with self.server(model, saved, *more) as second:
                    told = second.document["config"]["prefix_cache_file"]
                    self.assertGreater(told["tokens"], 60, told)
                    self.assertEqual(second.metrics()['ridge:kv_pages{state="cached"}'], told["pages"])
                    uncached = self.ask(second, longer, cache_prompt=False)
                    other = self.ask(second, longer, cache_salt="b")
                    hit = self.ask(second, longer, cache_salt="a")
                    self.assertEqual((uncached[1], other[1]), (0, 0))
                    self.assertGreaterEqual(hit[1], 32 if family == "qwen35" else 50)
                    self.assertEqual(hit[0], uncached[0])
                    self.stop(second)
                with self.server(model, saved, *more, "-t", "1") as third:
                    again = self.ask(third, longer, cache_salt="a")
                    self.assertGreaterEqual(again[1], hit[1])
                    self.assertEqual(again[0], hit[0])

    def test_what_does_not_fit_is_refused_and_told(self):
        saved = self.path("fits.prefixes")
        with self.server(self.model("llama"), saved) as server:
            self.ask(server, PROMPT)
            self.stop(server)
        with open(saved, "rb") as file:
            good = file.read()
        cases = [
            ("another model", self.model("llama", 2), [], good), ("K type", self.model("llama"), ["-ctk", "f32"], good),
            ("flash attention", self.model("llama"), ["-fa", "off"], good), ("tokens of a page", self.model("llama"), ["--kv-page", "32"], good),
            ("damaged", self.model("llama"), [], good[:-9] + bytes([good[-9] ^ 1]) + good[-8:]), ("cut short", self.model("llama"), [], good[:-1]),
            ("cut short", self.model("llama"), [], b""),
        ]
        for says, model, more, content in cases:
            with self.subTest(says=says, more=more):
                with open(saved, "wb") as file:
                    file.write(content)
                with self.server(model, saved, *more) as server:
                    told = server.document["config"]["prefix_cache_file"]
                    self.assertIn(says, told["reason"])
                    self.assertEqual((told["pages"], server.metrics()['ridge:kv_pages{state="cached"}']), (0, 0))
                    self.assertEqual(self.ask(server, PROMPT)[1], 0)
                    server.child.send_signal(signal.SIGKILL)
                    err = server.child.communicate()[1]
                lines = [line for line in err.splitlines() if "starts empty" in line]
                self.assertEqual(len(lines), 1, err)
                self.assertIn(says, lines[0])
                with open(saved, "rb") as file:
                    self.assertEqual(file.read(), content, "a killed server leaves the file as it was")
        self.assertEqual([n for n in os.listdir(self.folder) if "tmp" in n], [])

    def test_a_disk_without_room_is_an_error_and_leaves_the_old_file(self):
        saved = self.path("full.prefixes")
        with open(saved, "wb") as file:
            file.write(b"RIDGEPFX old")
        server = self.server(self.model("llama"), saved)
        server.command = ["sh", "-c", 'ulimit -f 2; exec "$@"', "sh", *server.command]
        with server:
            self.ask(server, PROMPT)
            status, err = server.stop(SIGTERM)
        self.assertEqual(status, 1, err)
        self.assertEqual(len([line for line in err.splitlines() if line.startswith("error: ") and "full.prefixes" in line]), 1, err)
        with open(saved, "rb") as file:
            self.assertEqual(file.read(), b"RIDGEPFX old")

    def test_a_file_of_another_kind_is_not_written_over(self):
        for content in (b"notes", b"RIDGEPFY" + bytes(100), b"x" * 5000):
            notes = self.path("notes.txt")
            with open(notes, "wb") as file:
                file.write(content)
            done = subprocess.run([RIDGE, "serve", "-m", self.model("llama"), "--port", "0", "--prefix-cache-file", notes], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("notes.txt", done.stderr)
            self.assertIn("no saved prefix cache", done.stderr)
            with open(notes, "rb") as file:
                self.assertEqual(file.read(), content)

    def refused(self, path, status, *says):
        done = subprocess.run([RIDGE, "serve", "-m", self.model("llama"), "--port", "0", "--prefix-cache-file", path], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, status, done.stderr)
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(errors), 1, done.stderr)
        for part in says:
            self.assertIn(part, errors[0])
        self.assertNotIn("loading", done.stderr, "known before the model is read")

    def test_one_server_to_a_file(self):
        saved, link = self.path("shared.prefixes"), self.path("link.prefixes")
        os.symlink(self.folder, self.path("elsewhere"))
        with self.server(self.model("llama"), saved) as first:
            for path in (saved, self.path("./shared.prefixes"), self.path("elsewhere/shared.prefixes")):
                self.refused(path, 1, "another server", "--prefix-cache-file")
            self.ask(first, PROMPT)
            self.stop(first)
        os.symlink(saved, link)
        with self.server(self.model("llama"), link) as second:
            self.assertGreater(second.document["config"]["prefix_cache_file"]["tokens"], 0)
            self.refused(saved, 1, "another server")
            second.child.send_signal(signal.SIGKILL)
            second.child.communicate()
        with self.server(self.model("llama"), saved) as third:  # a killed server keeps nobody out
            self.assertGreater(third.document["config"]["prefix_cache_file"]["tokens"], 0)
            self.stop(third)

    def test_a_name_that_cannot_be_is_refused_before_the_model_is_read(self):
        for name in ("n" * 256, "n" * 251, "x/" * 2100 + "y"):
            with self.subTest(name=name[:3], length=len(name)):
                self.refused(self.path(name), 1, "too long")
        longest = self.path("n" * 250)
        with self.server(self.model("llama"), longest) as server:
            self.ask(server, PROMPT)
            self.assertIn("saved to", self.stop(server))
        self.assertTrue(os.path.getsize(longest) > 0)

    def test_wrong_usage(self):
        for status, arguments in ((2, ["--prefix-cache-file", self.path("a"), "--no-prefix-cache"]), (2, ["--prefix-cache-file", self.path("a"), "--embeddings"]),
                                  (1, ["--prefix-cache-file", self.path("no/such/a")]), (1, ["--prefix-cache-file", self.folder])):
            with self.subTest(arguments=arguments):
                done = subprocess.run([RIDGE, "serve", "-m", self.model("llama"), "--port", "0", *arguments], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertEqual(sum(line.startswith("error: ") for line in done.stderr.splitlines()), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
