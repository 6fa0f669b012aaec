"""What README.md, CONTRIBUTING.md and docs/ say is true: links and named files exist, flags exist, commands run.

Commands that need a model run only where the store has it (./dev run fetches it); the others always run.
"""
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RIDGE = os.environ.get("RIDGE_BIN", os.path.join(ROOT, "build", "release", "bin", "ridge"))
PAGES = sorted(glob.glob(os.path.join(ROOT, "*.md")) + glob.glob(os.path.join(ROOT, "docs", "*.md")))
MODEL = "smollm2:135m"
NETWORK = ("pull", "rm")  # these would change the user's store or need the network


def text_of(page):
    with open(page, encoding="utf-8") as file:
        return file.read()


def commands():
    """(page, words) of each command line in the ```sh blocks."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", text_of(page), re.S):
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    found.append((os.path.relpath(page, ROOT), words))
    return found


def run(words, **options):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=600, **options)


class Docs(unittest.TestCase):
    def test_links_lead_somewhere(self):
        count = 0
        for page in PAGES:
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text_of(page)):
                if "://" in target:
                    continue
                count += 1
                self.assertTrue(os.path.exists(os.path.join(os.path.dirname(page), target)), f"{page}: {target}")
        self.assertGreater(count, 10)

    def test_named_files_exist(self):
        count = 0
        for page in PAGES:
            for name in re.findall(r"`((?:src|apps|tools|tests|fuzz|docs|cmake|\.ci)/[\w./-]+)`", text_of(page)):
                if "NAME" in name or "x_test" in name:
                    continue
                count += 1
                self.assertTrue(os.path.exists(os.path.join(ROOT, name)), f"{page}: {name}")
        self.assertGreater(count, 10)

    def assert_flags(self, words, help_text):
        for word in words:
            if re.match(r"^-{1,2}[a-z]", word):
                name = word.lstrip("-")
                self.assertRegex(help_text, rf"(?:^|[\s,])--?{re.escape(name)}\b", "a flag that --help does not list")

    def test_commands_and_flags_exist(self):
        dev = text_of(os.path.join(ROOT, "dev"))
        helps = {}
        count = 0
        for page, words in commands():
            with self.subTest(page=page, command=" ".join(words)):
                if words[0] == "./dev":
                    self.assertRegex(dev, rf"(?m)^  {words[1]}[) ]")
                elif words[0] == "ridge":
                    if words[1] not in helps:
                        helps[words[1]] = run([RIDGE, words[1], "--help"]).stdout.decode()
                    self.assert_flags(words[2:], helps[words[1]])
                elif words[0] == "build/venv/bin/python":
                    help_text = run([sys.executable, os.path.join(ROOT, words[1]), "--help"])
                    self.assertEqual(help_text.returncode, 0, words[1])
                    self.assert_flags(words[2:], help_text.stdout.decode())
                else:
                    self.fail("neither ./dev nor ridge nor one of our tools")
                count += 1
        self.assertGreater(count, 10)

    def test_commands_run(self):
        have_model = run([RIDGE, "show", MODEL, "--json"]).returncode == 0
        ran = 0
        with tempfile.TemporaryDirectory() as folder:
            for page, words in commands():
                if words[0] != "ridge" or words[1] in NETWORK or (MODEL in words and not have_model):
                    continue
                with self.subTest(page=page, command=" ".join(words)):
                    done = run([RIDGE, *words[1:]], cwd=folder, env={**os.environ, "XDG_CACHE_HOME": os.path.join(folder, "cache")})
                    self.assertEqual(done.returncode, 0, done.stderr.decode("utf-8", "replace")[-500:])
                    self.assertTrue(done.stdout.strip() or words[1] == "list", "nothing on stdout")
                    ran += 1
        self.assertGreater(ran, 0)

    @unittest.skipUnless(run([RIDGE, "show", MODEL, "--json"]).returncode == 0, f"{MODEL} is not in the store; ./dev run fetches it")
    def test_model_is_there_for_the_commands(self):
        """Says by name, where the model is missing, that most commands above were not run."""
        self.assertGreater(sum(MODEL in words for _, words in commands()), 3)

    def test_every_subcommand_has_help_with_an_example(self):
        listed = re.findall(r"(?m)^  (\w[\w-]*) {2,}", run([RIDGE, "--help"]).stdout.decode().split("ubcommands:")[-1])
        self.assertIn("doctor", listed)
        readme = text_of(os.path.join(ROOT, "README.md"))
        for name in listed:
            with self.subTest(name):
                done = run([RIDGE, name, "--help"])
                self.assertEqual(done.returncode, 0)
                self.assertIn(f"ridge {name}", done.stdout.decode().split("xample")[-1])
                self.assertIn("--json", done.stdout.decode())
                self.assertIn(f"`{name}`", readme, "not in the README's table")

    def test_kernel_table_is_what_the_program_prints(self):
        printed = run([RIDGE, "doctor", "--kernels"])
        self.assertEqual(printed.returncode, 0)
        page = text_of(os.path.join(ROOT, "docs", "kernels.md"))
        held = page.split("<!-- ridge doctor --kernels -->\n")[1].split("<!-- end -->")[0]
        self.assertEqual(held, printed.stdout.decode(), "put the output of `ridge doctor --kernels` between the two marks")
        self.assertGreater(held.count("\n"), 25)

    def test_dependencies_are_told_and_installed(self):
        """./dev installs what the targets link and nothing else, and docs/dependencies.md has a line for each."""
        page = text_of(os.path.join(ROOT, "docs", "dependencies.md")).lower()
        packages = re.search(r"libraries that Ridge links\|(.*)", text_of(os.path.join(ROOT, "dev"))).group(1).split()
        cmake = "".join(text_of(os.path.join(ROOT, name)) for name in ("src/CMakeLists.txt", "apps/ridge/CMakeLists.txt", "cmake/ridge.cmake"))
        cmake = re.sub(r"#.*", "", cmake)
        known = {"libboost1.81-dev": (None, "boost"),  # package: (what CMake or the sources name it, what the page calls it)
            "libfmt-dev": ("fmt::fmt", "fmt"), "nlohmann-json3-dev": (None, "nlohmann"), "libcli11-dev": (None, "cli11"),
            "libpcre2-dev": ("pcre2-8", "pcre2"), "libutf8proc-dev": ("utf8proc", "utf8proc"), "libxxhash-dev": ("xxhash", "xxhash"),
            "libssl-dev": ("crypto", "openssl"), "libcurl4-openssl-dev": ("curl", "libcurl"), "libzip-dev": ("zip", "libzip"),
            "libtomlplusplus-dev": (None, "toml++"), "libsqlite3-dev": ("sqlite3", "sqlite"),
        }
        self.assertEqual(sorted(packages), sorted(known))
        for package, (target, word) in known.items():
            self.assertIn(word, page, package)
            if target:
                self.assertRegex(cmake, rf"(?<![\w-]){re.escape(target)}(?![\w-])", package)
        linked = {word for line in re.findall(r"LIBS ([^)]*)\)", cmake) for word in line.split()}
        for target in linked - {"${M_LIBS}"}:
            self.assertIn(target, [name for name, _ in known.values()], "linked, but ./dev does not install it")


if __name__ == "__main__":
    unittest.main()
