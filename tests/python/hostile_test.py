"""Command lines, files and signals that are meant to do harm: each ends in one line, one document and the right status.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/hostile_test.py
"""
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import TEXT, Server
try:
    from tiny_model import CHATML, write_tiny_model
    MISSING = ""
except ImportError as error:
    MISSING = f"writes its models with numpy and gguf: {error}"

RIDGE = os.environ.get("RIDGE_BIN", "build/release/bin/ridge")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


@unittest.skipIf(MISSING, MISSING)
class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.base = os.path.join(cls.folder.name, "base.gguf")
        cls.chat = os.path.join(cls.folder.name, "chat.gguf")
        write_tiny_model(cls.base)
        write_tiny_model(cls.chat, chat_template=CHATML, context=4096)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def refused(self, status, *arguments, **options):
        """Runs ridge with --json: exactly one error line and one document; returns its error."""
        run = subprocess.run([RIDGE, *arguments, "--json"], capture_output=True, stdin=subprocess.DEVNULL, timeout=120, **options)
        self.assertEqual(run.returncode, status, run.stderr)
        self.assertEqual(sum(line.startswith(b"error: ") for line in run.stderr.splitlines()), 1, run.stderr)
        return json.loads(run.stdout)["error"]

    def test_an_export_never_overwrites_the_model(self):
        before = digest(self.base)
        link, hard = os.path.join(self.folder.name, "link.gguf"), os.path.join(self.folder.name, "hard.gguf")
        os.symlink(self.base, link)
        os.link(self.base, hard)
        for out in (self.base, link, hard, os.path.join(self.folder.name, ".", "base.gguf")):
            self.assertIn("model itself", self.refused(1, "logits", "-m", self.base, "-p", "a", "-o", out)["what"])
        self.assertEqual(digest(self.base), before)

    def test_a_sweep_is_checked_before_it_starts_and_gives_one_document(self):
        bench = ("bench", "-m", self.base, "-p", "4", "-n", "0", "-r", "1")
        self.assertEqual(self.refused(2, *bench, "--isa", "scalar,junk")["where"], "--isa")
        self.assertEqual(self.refused(2, *bench, "-ctk", "f16,junk")["where"], "-ctk")
        self.assertEqual(self.refused(2, *bench, "-t", "1,99999999999")["where"], "-t")
        self.assertEqual(self.refused(2, *bench, "-ub", "0")["where"], "-ub")
        self.assertEqual(self.refused(1, "bench", "-m", self.base + ",/nowhere", "-p", "4", "-n", "0")["where"], "/nowhere")
        self.refused(2, "bench", "-m", self.base, "-t", "1-1000", "-b", "1-1000", "-ub", "1-1000")
        run = subprocess.run([RIDGE, *bench, "-t", "1,2", "--json"], capture_output=True, check=True)
        self.assertEqual([row["n_threads"] for row in json.loads(run.stdout)], [1, 2])

    def test_threads_that_the_system_refuses(self):
        def few():
            resource.setrlimit(resource.RLIMIT_AS, (1500 << 20, 1500 << 20))
        error = self.refused(1, "run", "-m", self.base, "-p", "a", "-n", "1", "-t", "1000", preexec_fn=few)
        self.assertEqual(error["code"], "resource_exhausted")

    def test_json_that_no_double_holds(self):
        path = os.path.join(self.folder.name, "messages.json")
        with open(path, "w") as file:
            file.write('[{"role": "user", "content": 1e999}]')
        self.assertEqual(self.refused(1, "template", "-m", self.chat, "--messages", path)["code"], "invalid_data")

    def test_a_value_that_looks_like_a_flag_stays_a_value(self):
        run = subprocess.run([RIDGE, "run", "-m", self.base, "-p", "-sys", "-n", "1", "--json"], capture_output=True, check=True)
        self.assertEqual(len(json.loads(run.stdout)["prompt_ids"]), 4)

    def test_unknown_commands_and_flags_are_named(self):
        self.assertEqual(self.refused(2, "junk")["found"], "junk")
        self.assertIn("ridge run --help", self.refused(2, "run", "--junk")["remedy"])

    def test_help_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            run = subprocess.run([RIDGE, "run", "--help"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(run.returncode, 1)
        self.assertTrue(run.stderr.startswith(b"error: "))

    def test_a_model_file_that_is_cut_short_while_it_is_in_use_is_named(self):
        """Overwriting in place, as cp does; one that is deleted or replaced by renaming stays as it is for who has it open."""
        for cut in (True, False):
            model = os.path.join(self.folder.name, 'in "use".gguf')
            shutil.copyfile(self.chat, model)
            chat = subprocess.Popen([RIDGE, "run", "-m", model, "-cnv", "-n", "4", "--temp", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                chat.stdin.write(b"hello\n")
                chat.stdin.flush()
                chat.stdout.read(1)
                os.truncate(model, 1) if cut else os.remove(model)
                out, err = chat.communicate(b"hello\n" * 3, timeout=120)
            finally:
                chat.kill()
            lines = [line for line in err.decode().splitlines() if line.startswith("error: ")]
            if cut:
                self.assertEqual((chat.returncode, len(lines)), (1, 1), err)
                self.assertIn("cut short", lines[0])
                self.assertIn(model, lines[0])
            else:
                self.assertEqual((chat.returncode, lines), (0, []), err)

    def test_a_model_file_that_is_cut_in_the_middle_of_a_page_gives_no_answers(self):
        """The rest of that page reads as zeroes, and no signal comes: rows of the embedding that stay mapped would be nought in silence."""
        model = os.path.join(self.folder.name, "cut.gguf")
        shutil.copyfile(self.chat, model)
        inspected = subprocess.run([RIDGE, "inspect", model, "--json"], capture_output=True, stdin=subprocess.DEVNULL, check=True)
        rows = next(t for t in json.loads(inspected.stdout)["tensors"] if t["name"] == "token_embd.weight")
        row_bytes = rows["size_bytes"] // rows["shape"][1]
        token = next(t for t in range(40, 80) if (rows["offset"] + t * row_bytes) % 4096 in range(1024, 2048))
        body = {"prompt": [token] * 3, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
        with Server(model, "-np", "2", "-c", "64", "--no-prefix-cache") as server:
            self.assertEqual(server.post(TEXT, body)[0], 200)
            os.truncate(model, rows["offset"] + token * row_bytes)
            for stream in (False, True):
                status, _, text = server.request("POST", TEXT, json.dumps({**body, "stream": stream}).encode())
                error = json.loads(text.decode().split("data: ")[1] if stream else text)["error"]
                self.assertEqual((status, error["type"], error["param"]), (200 if stream else 500, "server_error", None), error)
                self.assertIn("cut short", error["message"])
                self.assertIn(model, error["message"])
            self.assertEqual(server.get("/health")[0], 200)
            self.assertEqual(server.stop(signal.SIGTERM)[0], 0)

    def test_sigterm_ends_a_chat_that_waits_for_its_next_line(self):
        chat = subprocess.Popen([RIDGE, "run", "-m", self.chat, "-cnv", "-n", "4", "--temp", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            chat.stdin.write(b"hello\n")
            chat.stdin.flush()
            chat.stdout.read(1)
            time.sleep(0.5)
            chat.send_signal(signal.SIGTERM)
            chat.wait(timeout=20)
        finally:
            chat.kill()
            chat.communicate()


if __name__ == "__main__":
    unittest.main()
