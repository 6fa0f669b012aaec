"""The library, include/ridge: its answers have the bits of the program, its misuse is defined, its headers are light, and a program outside of the
tree can be built with what is installed.

The programs that use it, ridge_api_check and ridge_c_api_check, and the examples stand beside RIDGE_BIN; `./dev test` builds them.
"""
import json
import os
import re
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

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RIDGE = os.environ.get("RIDGE_BIN", os.path.join(ROOT, "build", "release", "bin", "ridge"))
BIN = os.path.dirname(RIDGE)
BUILD = os.path.dirname(BIN)
if not MISSING and not os.path.exists(os.path.join(BIN, "ridge_api_check")):
    MISSING = f"needs ridge_api_check in {BIN}: build the target ridge_tests"
PROMPT = "the quick brown fox and the lazy dog, again and again and again"


def run(*words, **options):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, **options)


@unittest.skipIf(MISSING, MISSING)
class Library(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.base, cls.chat = os.path.join(cls.folder, "base.gguf"), os.path.join(cls.folder, "chat.gguf")
        tiny_model.write_tiny_model(cls.base)
        tiny_model.write_tiny_model(cls.chat, tiny_model.CHATML, context=20000)  # runs long enough to be cancelled

    def ids(self, *arguments, model=None):
        ran = run(RIDGE, "run", "-m", model or self.chat, "--json", *arguments)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return json.loads(ran.stdout)["ids"]

    def checked(self, *words):
        """What a check program printed: name -> the values of each of its lines."""
        ran = run(*words)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertNotIn("FAILED", ran.stdout)
        self.assertEqual(ran.stderr, "", "the library prints nothing")
        out = {}
        for line in ran.stdout.splitlines():
            name, *values = line.split()
            out.setdefault(name, []).append(values)
        return out

    def test_cpp(self):
        got = self.checked(os.path.join(BIN, "ridge_api_check"), self.chat, self.base)
        as_ints = lambda name: [int(v) for v in got[name][0]]
        greedy = self.ids("-p", PROMPT, "-n", "20", "--temp", "0")
        self.assertEqual(as_ints("greedy"), greedy)
        self.assertEqual(as_ints("of_ids"), greedy)
        self.assertEqual(as_ints("sampled"), self.ids("-p", PROMPT, "-n", "30", "--temp", "0.9", "-s", "7", "--ignore-eos"))
        self.assertEqual(as_ints("chat"), self.ids("-st", "-sys", "S", "-p", "Hi", "-n", "8", "--temp", "0"))
        ran = run(RIDGE, "embed", "-m", self.base, "-p", "the quick", "--json")
        self.assertEqual([float(v) for v in got["embedding"][0]], json.loads(ran.stdout)["embeddings"][0]["embedding"])

    def test_c(self):
        got = self.checked(os.path.join(BIN, "ridge_c_api_check"), self.chat)
        greedy = self.ids("-p", "the quick brown fox", "-n", "25", "--temp", "0", "--ignore-eos")
        self.assertEqual([int(v) for v in got["greedy"][0]], greedy[:20])
        self.assertEqual([int(v) for v in got["fork"][0]], greedy[20:])
        chat = self.ids("-st", "-sys", "S", "-p", "Hi", "-n", "8", "--temp", "0", "--ignore-eos")
        self.assertEqual([[int(v) for v in line] for line in got["chat"]], [chat] * 3)

    def test_examples(self):
        text = json.loads(run(RIDGE, "run", "-m", self.base, "-p", "the quick", "-n", "24", "--temp", "0", "--json").stdout)["text"]
        for name in ("ridge_complete", "ridge_complete_c"):
            ran = run(os.path.join(BIN, name), self.base, "the quick")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertTrue(ran.stdout.startswith(text + "\n"), ran.stdout)
            self.assertEqual(run(os.path.join(BIN, name)).returncode, 2)
            wrong = run(os.path.join(BIN, name), "/no/such/model.gguf", "a")
            self.assertEqual((wrong.returncode, wrong.stderr.count("\n")), (1, 1), wrong.stderr)
            self.assertIn("/no/such/model.gguf", wrong.stderr)


@unittest.skipIf(MISSING, MISSING)
@unittest.skipUnless(shutil.which("cmake") and shutil.which("g++") and shutil.which("gcc"), "needs cmake, g++ and gcc")
class Installed(unittest.TestCase):
    """A stranger's programs, with what `cmake --install --component library` leaves and nothing else."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.prefix = os.path.join(cls.folder, "prefix")
        done = run("cmake", "--install", BUILD, "--prefix", cls.prefix, "--component", "library")
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        cls.include = os.path.join(cls.prefix, "include")

    def test_headers_are_light(self):
        for name, compiler in (("ridge.h", ["g++", "-std=c++23"]), ("ridge_c.h", ["g++"]), ("ridge_c.h", ["gcc", "-std=c99"])):
            source = os.path.join(self.folder, "light.c" if compiler[0] == "gcc" else "light.cc")
            with open(source, "w") as file:
                file.write(f'#include "ridge/{name}"\n')
            flags = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
            done = run(*compiler, *flags, "-I", self.include, "-M", source)
            self.assertEqual(done.returncode, 0, done.stderr)
            ours = [os.path.relpath(path, self.include) for path in done.stdout.split() if path.startswith(self.include)]
            self.assertEqual(set(ours) - {"ridge/result.h"}, {f"ridge/{name}"})
            self.assertIsNone(re.search(r"/(fmt|nlohmann|boost)/|/c\+\+/\d+/(thread|iostream|regex|map|chrono|mutex)\b", done.stdout), name)
            self.assertEqual(run(*compiler, *flags, "-fsyntax-only", "-I", self.include, source).returncode, 0)

    def test_a_program_outside(self):
        model = os.path.join(self.folder, "tiny.gguf")
        tiny_model.write_tiny_model(model)
        text = json.loads(run(RIDGE, "run", "-m", model, "-p", "the quick", "-n", "24", "--temp", "0", "--json").stdout)["text"]
        lib = os.path.join(self.prefix, "lib")
        values = {"pcfiledir": os.path.join(lib, "pkgconfig")}
        flags = {}
        with open(os.path.join(lib, "pkgconfig", "ridge.pc")) as file:  # what pkg-config makes of it
            for line in file:
                for name, value in values.items():
                    line = line.replace("${%s}" % name, value)
                if "=" in line.split(":")[0]:
                    values.update([line.strip().split("=", 1)])
                elif ": " in line:
                    flags.update([line.strip().split(": ", 1)])
        if shutil.which("pkg-config"):
            env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(lib, "pkgconfig"))
            self.assertEqual(run("pkg-config", "--libs", "ridge", env=env).stdout.split()[1:], flags["Libs"].split()[1:])
        program = os.path.join(self.folder, "program")
        built = run("gcc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", *flags["Cflags"].split(),
                    os.path.join(ROOT, "examples", "complete.c"), "-o", program, *flags["Libs"].split())
        self.assertEqual(built.returncode, 0, built.stderr)
        self.assertTrue(run(program, model, "the quick").stdout.startswith(text))
        project = os.path.join(self.folder, "project")
        os.mkdir(project)
        shutil.copy(os.path.join(ROOT, "examples", "complete.cc"), project)
        with open(os.path.join(project, "CMakeLists.txt"), "w") as file:
            file.write("cmake_minimum_required(VERSION 3.25)\nproject(outside CXX)\nset(CMAKE_CXX_STANDARD 23)\nfind_package(Ridge REQUIRED)\n"
                       "add_executable(outside complete.cc)\ntarget_link_libraries(outside Ridge::ridge)\n")
        for words in (["-S", project, "-B", project + "/build", f"-DCMAKE_PREFIX_PATH={self.prefix}"], ["--build", project + "/build"]):
            done = run("cmake", *words)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(run(project + "/build/outside", model, "the quick").stdout.startswith(text))


if __name__ == "__main__":
    unittest.main()
