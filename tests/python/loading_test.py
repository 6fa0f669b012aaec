"""--panel-cache: the same answers from kept panels as from packed ones; what is stale, damaged or cut short is said and packed anew.

RIDGE_BIN names the program. Runs on a tiny random model (needs the gguf package).
"""
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
try:
    import tiny_model
    MISSING = ""
except ImportError as error:
    tiny_model, MISSING = None, f"needs the Python package {error.name}"

RIDGE = os.environ.get("RIDGE_BIN", os.path.abspath("build/release/bin/ridge"))


def ridge(*arguments, **options):
    return subprocess.run([RIDGE, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, **options)


@unittest.skipIf(tiny_model is None, MISSING)
class PanelCache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.model = os.path.join(cls.folder, "model.gguf")
        tiny_model.write_tiny_model(cls.model)
        time.sleep(2.1)  # a file younger than two seconds is not kept

    def setUp(self):
        self.cache = tempfile.mkdtemp(dir=self.folder)

    def hash_of(self, *arguments, model=None, **options):
        run = ridge("logits", "-m", model or self.model, "--ids", "1,2,3,4,5", "--json", *arguments, **options)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)["hash"], run.stderr

    def config(self, *arguments):
        run = ridge("run", "-m", self.model, "-p", "a", "-n", "1", "--temp", "0", "--json", *arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)["config"]["panel_cache"]

    def kept(self):
        return [os.path.join(self.cache, name) for name in os.listdir(self.cache)]

    def test_nothing_is_written_without_the_flag(self):
        before = sorted(os.listdir(self.folder))
        self.assertEqual(self.config(), "off")
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_the_second_load_reads_and_gives_the_same_bits(self):
        plain, _ = self.hash_of()
        first, _ = self.hash_of("--panel-cache", self.cache)
        self.assertEqual(len(self.kept()), 1)
        stamp = os.stat(self.kept()[0])
        second, said = self.hash_of("--panel-cache", self.cache)
        self.assertEqual([first, second], [plain, plain])
        self.assertEqual(said, "")
        self.assertEqual(os.stat(self.kept()[0]).st_mtime_ns, stamp.st_mtime_ns)
        self.assertTrue(self.config("--panel-cache", self.cache).startswith("read "))

    def test_every_command_that_computes_takes_it(self):
        for arguments in (["bench", "-p", "4", "-n", "2", "-r", "1", "-o", "json"],
                          ["batched-bench", "-npp", "4", "-ntg", "2", "-npl", "1", "-o", "jsonl"],
                          ["logits", "--ids", "1,2"], ["run", "-p", "a", "-n", "1"]):
            cache = tempfile.mkdtemp(dir=self.folder)
            run = ridge(arguments[0], "-m", self.model, *arguments[1:], "--panel-cache", cache)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(len(os.listdir(cache)), 1, arguments)

    def test_the_folder_is_made(self):
        deep = os.path.join(self.cache, "a", "b")
        self.hash_of("--panel-cache", deep)
        self.assertEqual(len(os.listdir(deep)), 1)

    def test_damage_is_said_and_repaired(self):
        plain, _ = self.hash_of("--panel-cache", self.cache)
        path, = self.kept()
        size = os.path.getsize(path)
        for harm in ("flip", "header", "cut", "empty", "grow"):
            with open(path, "r+b") as file:
                if harm in ("flip", "header"):
                    at = size - 5 if harm == "flip" else 70
                    file.seek(at)
                    old = file.read(1)[0]
                    file.seek(at)
                    file.write(bytes([old ^ 1]))
                else:
                    file.truncate({"cut": size - 1, "empty": 0, "grow": size + 4096}[harm])
            again, said = self.hash_of("--panel-cache", self.cache)
            self.assertEqual(again, plain, harm)
            self.assertIn("not used", said, harm)
            self.assertEqual(said.count("\n"), 1, said)
            self.assertEqual(os.path.getsize(path), size)
            self.assertEqual(self.hash_of("--panel-cache", self.cache), (plain, ""), harm)

    def test_another_model_under_the_same_name_is_not_taken_for_the_first(self):
        model = os.path.join(self.folder, "swapped.gguf")
        shutil.copy(self.model, model)
        time.sleep(2.1)
        plain, _ = self.hash_of("--panel-cache", self.cache, model=model)
        with open(model, "r+b") as file:  # in place, size and mtime kept
            times = os.stat(model)
            file.seek(-64, os.SEEK_END)
            tail = bytearray(file.read(64))
            tail[0] ^= 0x40
            file.seek(-64, os.SEEK_END)
            file.write(tail)
        os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
        time.sleep(2.1)
        changed, _ = self.hash_of(model=model)
        self.assertNotEqual(changed, plain)
        self.assertEqual(self.hash_of("--panel-cache", self.cache, model=model)[0], changed)

    def test_no_room_leaves_nothing_and_the_run_goes_on(self):
        plain, _ = self.hash_of()

        def small():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        got, said = self.hash_of("--panel-cache", self.cache, preexec_fn=small)
        self.assertEqual(got, plain)
        self.assertIn("not kept", said)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertEqual(self.kept(), [])
        strict = ridge("logits", "-m", self.model, "--ids", "1,2", "--panel-cache", self.cache, "--strict", preexec_fn=small)
        self.assertEqual(strict.returncode, 1, strict.stderr)
        self.assertEqual(self.kept(), [])

    def test_a_folder_that_cannot_be_is_refused(self):
        run = ridge("logits", "-m", self.model, "--ids", "1,2", "--panel-cache", os.path.join(self.model, "sub"))
        self.assertEqual(run.returncode, 1)
        self.assertEqual([line for line in run.stderr.splitlines() if "--panel-cache" in line and line.startswith("error: ")],
                         run.stderr.splitlines())


if __name__ == "__main__":
    unittest.main()
