"""The command line itself, from outside: errors that say what, where, found, expected and the remedy and name options as they were typed; values that are
empty or no numbers; options that mean the same read the same in every command's --help.

RIDGE_BIN names the program. Needs no model.
"""
import collections
import json
import os
import re
import subprocess
import unittest

RIDGE = os.environ.get("RIDGE_BIN", os.path.abspath("build/release/bin/ridge"))

# Names that mean another thing from command to command, or of which each takes what suits it; all others are held against each other.
THEIR_OWN = {
    "--api-key", "--completions", "--concurrency", "--csv", "--format", "--from", "--ids", "--ignore-eos", "--lines", "--memory", "--model", "--output", "--requests", "--seed",
    "-m", "-n", "-o", "-p", "-r",
    "--blocks", "--plant-sleep", "--n-gen", "--n-prompt", "--fusion", "--time", "--url", "--timeout",
}
# (name, command): the same idea, with a reason to differ.
APART = {
    ("-c", "roofline"), ("-c", "perplexity"), ("-c", "kld"), ("-c", "plan"),  # lengths that are predicted or cut into windows, with defaults of their own
    ("-ctk", "plan"), ("-np", "plan"),  # the task chooses
    ("--spec", "run"),  # off unless asked for
    ("--profile", "run"), ("--profile", "serve"), ("--profile", "bench"),  # pick up what ridge tune stored
}


def ridge(*arguments, **options):
    return subprocess.run([RIDGE, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, **options)


def commands():
    return re.findall(r"(?m)^  (\w[\w-]*) {2,}", ridge("--help").stdout.split("ubcommands:")[-1])


def options_of(command):
    """[(names, the rest of the left column, the text)]"""
    body = ridge(command, "--help").stdout.split("Options:\n", 1)[1].split("\n\n")[0]
    out = []
    for entry in re.split(r"(?m)^  (?=-)", body)[1:]:
        names, _, rest = " ".join(entry.split()).partition(" ")
        out.append((names.split(","), rest))
    return out


class CommandLine(unittest.TestCase):
    def refused(self, *arguments, status=2, **wanted):
        plain, told = ridge(*arguments), ridge(*arguments, "--json")
        self.assertEqual((plain.returncode, plain.stdout), (status, ""), plain.stderr)
        lines = [line for line in plain.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, plain.stderr)
        self.assertEqual(told.returncode, status)
        error = json.loads(told.stdout)["error"]
        for key, value in wanted.items():
            self.assertIn(value, error[key], (arguments, error))
            self.assertIn(value, lines[0])
        return error

    def test_what_is_unknown_is_named_first_with_its_neighbour(self):
        self.refused("run", "--wat", what="unknown option", where="ridge run", found="--wat", remedy="see ridge run --help")
        self.refused("run", "--wat", "-p", "x", what="unknown option")  # and not that -m is missing
        for typed, nearest in (("--tempp", "--temp"), ("--ctx", "--ctx-size"), ("--ctx_size", "--ctx-size"), ("--TEMP", "--temp"), ("--thread", "--threads"), ("-ctx", "--ctx-size"), ("-cnvv", "-cnv"), ("--prefix-cache-fil=x", "")):
            error = self.refused("run", typed, "1", "-m", "x", what="unknown option", found=typed.split("=")[0])
            self.assertIn(nearest + ", perhaps" if nearest else "an option of ridge run", error["expected"])
        self.assertIn("--host is one of ridge serve", self.refused("run", "-m", "x", "--host", "::1")["expected"])
        self.assertEqual(self.refused("run", "-m", "x", "-np", "4")["found"], "-np")  # not the number "p" for -n
        self.assertEqual(self.refused("tokenize", "-md", "x", "-p", "a")["found"], "-md")  # not the model "d"
        self.refused("rum", what="unknown command", found="rum", expected="run, perhaps", remedy="see ridge --help")
        self.refused("qwertz", what="unknown command", expected="run, serve")
        self.refused("--wat", what="unknown option", where="ridge", found="--wat")
        self.assertIn("a command before it", ridge("--port", "1").stderr)
        for arguments in ([], ["--json"]):
            self.assertEqual(ridge(*arguments).returncode, 2)

    def test_what_is_missing_or_too_much(self):
        self.refused("run", "-p", "x", what="an option is missing", where="ridge run", expected="-m: a GGUF file")
        self.refused("show", what="an argument is missing", where="ridge show", expected="MODEL")
        self.refused("inspect", what="an argument is missing", expected="MODEL (or -m)")
        self.refused("run", "model.gguf", "-p", "x", what="unexpected argument", found="model.gguf", remedy="a model is given with -m")
        self.refused("show", "a", "b", what="unexpected argument", found="b")
        run = ridge("run", "-p", "x", "-m")
        self.assertEqual(run.returncode, 2)
        self.assertIn("the option has no value: -m", run.stderr)
        self.refused("run", "-m", "x", "-t", "1", "--threads", "2", what="given twice", where="--threads", found="1 before it")
        self.refused("inspect", "x", "-c", "5", what="goes with another", where="-c", expected="--memory")
        self.refused("inspect", "x", "--ctx-size", "5", where="--ctx-size")
        self.refused("inspect", "x", "--memory", "--graph", what="exclude one another", where="--memory", found="--graph")

    def test_numbers_are_named_as_they_were_typed(self):
        for typed in (["-t", "abc"], ["--threads", "abc"], ["-t=abc"], ["--threads=abc"], ["-t", "1.5"], ["-t", "0x10"], ["-t", " 4"], ["-t", "4 "], ["-t", "--strict"]):
            error = self.refused("run", "-m", "x", "-p", "x", *typed, what="not a decimal number", where=typed[0].split("=")[0], expected="a whole number")
            self.assertEqual(error["found"], typed[-1].split("=")[-1])
        self.refused("serve", "-m", "x", "-np", "x", what="not a decimal number", where="-np", found="x")
        self.assertEqual(self.refused("serve", "-m", "x", "--np", "0")["where"], "--np")
        self.refused("serve", "-m", "x", "--parallel", "1025", what="wrong value", where="--parallel", found="1025", expected="1 to 1024")
        self.refused("serve", "-m", "x", "--max-waiting", "0", where="--max-waiting", expected="1 to 1000000")
        self.refused("run", "-m", "x", "--temp", "hot", where="--temp", expected="a number, such as 0.5")
        self.refused("run", "-m", "x", "-s", "9" * 20, what="out of range", where="-s")
        self.refused("serve", "-m", "x", "--drain", "nan", what="not a number", where="--drain")
        self.refused("serve", "-m", "x", "--stall-timeout", "NaN", what="not a number", where="--stall-timeout")
        self.refused("load", "http://127.0.0.1:1", "--seed", "-1", what="out of range", where="--seed", expected="0 or more")
        self.refused("tune", "-m", "x", "--max-gap", "0", where="--max-gap", expected="above 0")
        self.refused("tune", "-m", "x", "--search", "threads,wings", where="--search", found="wings", expected="one of")

    def test_an_empty_value_is_no_value(self):
        for command, *typed in (("serve", "--kv-memory", ""), ("serve", "--kv-memory="), ("serve", "--api-key", ""), ("serve", "--host", ""), ("serve", "--prefix-cache-file", ""), ("run", "-sys", ""), ("run", "-t", ""), ("run", "-f", ""),
                                ("run", "--panel-cache", ""), ("run", "-md", ""), ("bench", "-o", ""), ("bench", "--profile="), ("logits", "-o", ""), ("perplexity", "--save-reference", ""), ("tune", "--max-memory", "")):
            self.refused(command, "-m", "x", *typed, what="the value is empty", where=typed[0].rstrip("="), found='""')
        self.refused("show", "", what="the value is empty", where="MODEL")
        self.refused("run", "-m", "", "-p", "x", what="the value is empty", where="-m")
        # Where a value may be empty it is taken.
        self.assertNotIn("the value is empty", ridge("template", "-m", "nowhere", "--messages", "x", "--bos", "", "--eos=").stderr)

    def test_errors_of_commands_name_the_option_as_it_was_typed(self):
        for option in ("-ctk", "--ctk", "--cache-type-k"):
            self.assertEqual(self.refused("run", "-m", "x", "-p", "a", option, "q7_9")["where"], option)
        for option in ("-fa", "--flash-attn"):
            self.assertEqual(self.refused("run", "-m", "x", "-p", "a", option, "maybe")["where"], option)

    def test_help_is_shown_whatever_else_is_wrong(self):
        for arguments in (["run", "--wat", "--help"], ["run", "-t", "abc", "-h"], ["serve", "--help"]):
            run = ridge(*arguments)
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            self.assertIn("Example:", run.stdout)

    def test_help_shows_options_as_llama_cpp_has_them(self):
        for command in commands():
            for names, rest in options_of(command):
                for name in names:
                    self.assertNotRegex(name, r"^--(np|ub|ctk|ctv|fa|ngl|cnv|st|sys|md|npp|ntg|npl|pg)$", command)
                self.assertNotRegex(rest, r"(^| )-[a-z]{2,3}: ", command)
        text = ridge("inspect", "--help").stdout
        self.assertEqual(text.count("REQUIRED"), 1)
        self.assertRegex(text, r"0: what the\s+model was trained for \(default: that, at most\s+4096\)")

    def test_options_that_commands_share_read_the_same(self):
        seen = collections.defaultdict(lambda: collections.defaultdict(set))
        for command in commands():
            for names, rest in options_of(command):
                # What kind of value it takes, and what it goes with, are a command's own affair: bench takes lists.
                rest = re.sub(r" Needs: --\w+|^(TEXT|INT|UINT|FLOAT)\b", "", rest).replace(" ...", "").strip()
                for name in names:
                    if name not in THEIR_OWN | {"-h", "--help", "--json"} and not any((n, command) in APART for n in names):
                        seen[name][rest].add(command)
        shared = {name: dict(texts) for name, texts in seen.items() if sum(map(len, texts.values())) > 1}
        self.assertGreater(len(shared), 20)
        for name, texts in shared.items():
            with self.subTest(option=name):
                self.assertEqual(len(texts), 1, texts)


if __name__ == "__main__":
    unittest.main()
