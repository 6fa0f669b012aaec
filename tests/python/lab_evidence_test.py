"""`ridge lab check|report|compare`: evidence that is derived again, reports in both languages, the gate of CI; subjects are small scripts.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/lab_evidence_test.py
"""
import html.parser
import json
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import tempfile
import time
import unittest

RIDGE = os.environ.get("RIDGE_BIN", "build/release/bin/ridge")
# Says it is llama-bench; its speed is 100 for one thread and `two` for two, with noise that follows from the run's number.
FAKE = """#!/bin/sh
t=1
while [ $# -gt 0 ]; do case $1 in -t) t=$2;; esac; shift; done
echo "log <b>of</b> $t" >&2
n=$(wc -l < {count}); echo x >> {count}
noise=$(( (n * 7919 % 13) - 6 ))
speed=$(( {one} + noise )); if [ $t = 2 ]; then speed=$(( {two} + noise )); fi
echo "[{{\\"n_prompt\\": 64, \\"n_gen\\": 0, \\"n_threads\\": $t, \\"model_type\\": \\"a|b <i> & 模型\\", \\"cpu_info\\": \\"c\\", \\"avg_ts\\": $speed}}]"
"""


def run(*args, status=0, **options):
    done = subprocess.run([RIDGE, "lab", *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=120, **options)
    if done.returncode != status:
        raise AssertionError(f"{args}: status {done.returncode}, {done.stdout.decode()} {done.stderr.decode()}")
    return done


class Page(html.parser.HTMLParser):
    """Is every element closed in order? What does the page load or run?"""

    VOID = {"meta", "input", "link", "br", "img", "hr", "wbr"}
    SELF = {"rect", "line", "circle", "polyline", "path"}

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text, self.bad = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name.startswith("on") or name in ("src", "srcdoc", "action") or (name == "href"):
                self.bad.append((tag, name, value))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.bad.append(("end", tag, list(self.open)))
            return
        self.open.pop()

    def handle_data(self, data):
        self.text.append(data)


class Evidence(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def make(self, name="e", one=1000, two=2000, blocks=5, flag="t", values="[1, 2]", text=""):
        script, count = self.path(name + ".sh"), self.path(name + ".count")
        open(count, "w", encoding="utf-8").close()
        with open(script, "w", encoding="utf-8") as file:
            file.write(FAKE.format(count=count, one=one, two=two))
        os.chmod(script, os.stat(script).st_mode | stat.S_IXUSR)
        toml = self.path(name + ".toml")
        with open(toml, "w", encoding="utf-8") as file:
            file.write(f'[experiment]\nname = "threads <b>{name}</b>"\nsubject = "llama-bench"\nprogram = "{script}"\nblocks = {blocks}\n'
                       f'[variable]\nflag = "{flag}"\nvalues = {values}\n{text}')
        run("run", toml)
        return self.path(name + ".lab")

    def quiet(self, bundle):
        """As if nothing had disturbed the runs: this machine may be busy. Sealed again by deriving."""
        for n in os.listdir(os.path.join(bundle, "runs")):
            if n.endswith("monitor.json"):
                path = os.path.join(bundle, "runs", n)
                with open(path, encoding="utf-8") as file:
                    record = json.load(file)
                record["disturbed"] = ""
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(record, file)
        os.remove(os.path.join(bundle, "MANIFEST"))
        run("run", bundle[:-4] + ".toml")
        return bundle

    def test_everything_is_derived_again(self):
        bundle = self.make()
        document = json.loads(run("check", bundle, "--rederive", "--json").stdout)
        self.assertEqual(document["problems"], 0)
        self.assertEqual(document["folders"][0]["derived"], 30 + 5)
        self.assertFalse(document["complete"])
        lacks = {a["id"]: a["lacks"] for a in document["acceptance"]}
        self.assertEqual(len(lacks["matrix"]), 3)
        self.assertEqual(lacks["raw_logs"], [])
        self.assertIn("no answers", lacks["quality"][0])
        self.assertIn("not complete", run("check", bundle, "--complete", status=1).stderr.decode())
        # The same elsewhere: nothing of this machine or folder is in what is derived, but the folder's name.
        moved = shutil.move(bundle, self.path("moved.lab"))
        run("check", moved, "--rederive")
        with sqlite3.connect(os.path.join(moved, "samples.sqlite")) as base:
            self.assertEqual(base.execute("SELECT count(*) FROM samples").fetchone(), (30,))
            self.assertGreater(base.execute("SELECT count(*) FROM monitor").fetchone()[0], 100)
            self.assertEqual(base.execute("SELECT count(*) FROM environment").fetchone(), (35,))
        base.close()
        with open(os.path.join(moved, "trace.json"), encoding="utf-8") as file:
            trace = json.load(file)
        self.assertEqual(len([e for e in trace["traceEvents"] if e.get("cat") == "run"]), 30)

    def test_random_flips_are_found_in_every_file(self):
        bundle = self.make(blocks=1)
        rng = random.Random(20261130)
        for folder, _, files in os.walk(bundle):
            for name in files:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    data = file.read()
                if not data:
                    continue
                at = rng.randrange(len(data))
                with open(path, "wb") as file:
                    file.write(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1:])
                done = subprocess.run([RIDGE, "lab", "check", bundle], capture_output=True, timeout=60)
                self.assertEqual(done.returncode, 1, f"{name} byte {at}")
                with open(path, "wb") as file:
                    file.write(data)
        run("check", bundle)

    def test_reports_in_both_languages(self):
        bundle = self.make()
        other = self.make("ngl", flag="ngl", values="[0]", text='[not_run]\n99 = "no NVIDIA driver"\n')
        for lang, words in (("zh", ["硬件", "首 token", "峰值内存", "温度/功耗", "质量备注", "日志", "我们看到"]),
                            ("en", ["Hardware", "First token", "Peak memory", "Quality", "we saw", "Four accounts"])):
            text = run("report", bundle, "--lang", lang).stdout.decode()
            for word in words:
                self.assertIn(word, text)
            self.assertIn("a\\|b &lt;i&gt; &amp; 模型", text)
            self.assertNotIn("<b>", text)
        self.assertIn("硬件", run("report", bundle).stdout.decode())
        page_file = self.path("all.html")
        run("report", bundle, other, "-o", page_file)
        with open(page_file, encoding="utf-8") as file:
            text = file.read()
        page = Page()
        page.feed(text)
        page.close()
        self.assertEqual(page.bad, [])
        self.assertEqual(page.open, [])
        self.assertNotIn("script", page.tags)
        self.assertEqual(page.tags.count("main"), 2)
        self.assertGreaterEqual(page.tags.count("svg"), 2)
        said = "".join(page.text)
        for word in ("threads <b>e</b>", "没有 NVIDIA 驱动", "no NVIDIA driver", "实验记录", "Record of experiments", "未运行"):
            self.assertIn(word, said)
        self.assertIn("sealed evidence", run("report", bundle, "-o", os.path.join(bundle, "r.html"), status=2).stderr.decode())
        self.assertIn(".md or .html", run("report", bundle, "-o", self.path("r.pdf"), status=2).stderr.decode())
        self.assertIn("--lang", run("report", bundle, "--lang", "fr", status=2).stderr.decode())
        self.assertIn("--rederive", run("report", bundle, "--rederive", status=2).stderr.decode())
        run("report", self.folder, "-o", self.path("r.md"))  # a folder that holds some
        document = json.loads(run("check", self.folder, "--json").stdout)
        self.assertEqual(len(document["folders"]), 2)
        self.assertTrue(any("recorded as not runnable here" in h for a in document["acceptance"] for h in a["have"]))

    def test_a_killed_experiment_loses_one_run_at_most(self):
        # The fifth run does not end before the lab is killed.
        script, calls, killed = self.path("slow.sh"), self.path("calls"), self.path("killed")
        self.write("slow.sh", f'#!/bin/sh\necho x >> "{calls}"\nif [ $(wc -l < "{calls}") = 5 ]; then while [ ! -e "{killed}" ]; do sleep 0.01; done; exit 1; fi\necho "[{{\\"n_prompt\\": 8, \\"n_threads\\": $2, \\"avg_ts\\": 5}}]"\n')
        os.chmod(script, 0o755)
        toml = self.write("slow.toml", f'[experiment]\nname = "slow"\nsubject = "llama-bench"\nprogram = "{script}"\nblocks = 2\n[variable]\nflag = "t"\nvalues = [1, 2]\n')
        lab = subprocess.Popen([RIDGE, "lab", "run", toml], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 300
        while not (os.path.exists(calls) and os.path.getsize(calls) == 10) and time.monotonic() < deadline:
            time.sleep(0.01)
        lab.kill()
        lab.wait()
        open(killed, "w", encoding="utf-8").close()
        self.assertIn("cannot open", run("check", self.path("slow.lab"), status=1).stderr.decode())  # not sealed
        kept = {n: os.stat(self.path(f"slow.lab/runs/{n:04}.monitor.json")).st_mtime_ns for n in range(4)}
        run("run", toml)
        self.assertEqual(kept, {n: os.stat(self.path(f"slow.lab/runs/{n:04}.monitor.json")).st_mtime_ns for n in range(4)})
        with open(calls, encoding="utf-8") as file:
            self.assertLessEqual(len(file.readlines()), 13)
        run("check", self.path("slow.lab"), "--rederive")

    def test_what_was_added_is_found_and_not_waited_for(self):
        bundle = self.make(blocks=1)
        run("check", bundle)
        for name, add, take in (("pipe", os.mkfifo, os.remove), ("link", lambda p: os.symlink("experiment.toml", p), os.remove), ("runs/hollow", os.mkdir, os.rmdir)):
            path = os.path.join(bundle, name)
            add(path)
            self.assertIn(name + ": is ", run("check", bundle, status=1).stderr.decode())
            take(path)
        for name in ("runs/0000.json", "runs/0001.monitor.json", "experiment.toml", "MANIFEST"):
            path = os.path.join(bundle, name)
            os.rename(path, self.path("kept"))
            os.mkfifo(path)
            for action in ("check", "report"):
                if (action, name) != ("report", "MANIFEST"):
                    run(action, bundle, status=1)
            os.remove(path)
            os.rename(self.path("kept"), path)
        run("check", bundle)

    def test_a_damaged_record_is_told_plainly(self):
        bundle = self.make(blocks=1)
        path = os.path.join(bundle, "runs/0000.monitor.json")
        for text in ("{", "[]", "{}", '{"seconds": "x"}'):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            err = run("report", bundle, status=1).stderr.decode()
            self.assertIn("a run's record is damaged", err)
            self.assertNotIn("json.exception", err)

    def test_sealed_evidence_is_not_sealed_again(self):
        bundle = self.make(blocks=1)
        path = os.path.join(bundle, "runs", "0000.json")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace('"avg_ts": ', '"avg_ts": 9'))
        run("run", self.path("e.toml"))
        self.assertIn("runs/0000.json: differs", run("check", bundle, status=1).stderr.decode())

    def test_compare_fails_on_a_slowdown_only(self):
        a, same, slow = (self.quiet(self.make(n, one=o, two=t)) for n, o, t in (("a", 1000, 2000), ("same", 1001, 2001), ("slow", 900, 1800)))
        self.assertIn("passed", run("compare", a, same, "--fail-on", "3%").stdout.decode())
        failed = run("compare", a, slow, "--fail-on", "3%", status=1)
        self.assertIn("slower than allowed", failed.stdout.decode())
        self.assertIn("a loss above the bound", failed.stderr.decode())
        run("compare", slow, a, "--fail-on", "3%")
        document = json.loads(run("compare", a, slow, "--json").stdout)
        self.assertEqual([c["verdict"] for c in document["cases"]], ["slower", "slower"])
        self.assertIsNone(document["passed"])
        document = json.loads(run("compare", a, slow, "--fail-on", "3%", "--json", status=1).stdout)
        self.assertFalse(document["passed"])
        # What A itself loses between two of its own is no effect of B.
        document = json.loads(run("compare", a, slow, "--again", slow, "--fail-on", "3%", "--json").stdout)
        self.assertEqual(document["undetermined"], 2)

    def test_compare_reads_results_of_bench(self):
        def write(name, speeds, **more):
            rows = [{"cpu_info": "c", "n_threads": 2, "n_prompt": 0, "n_gen": 32, "n_depth": 0, "flash_attn": True, "avg_ts": sum(speeds) / len(speeds),
                     "samples_ts": speeds, "samples_ns": [1] * len(speeds), **more}]
            with open(self.path(name), "w", encoding="utf-8") as file:
                json.dump(rows, file)
            return self.path(name)
        a = write("a.json", [100.0, 100.4, 99.8, 100.1, 100.2, 99.9])
        b = write("b.json", [94.0, 94.4, 93.8, 94.1, 94.2, 93.9])
        run("compare", a, a, "--fail-on", "3%")
        self.assertIn("slower than allowed", run("compare", a, b, "--fail-on", "3%", status=1).stdout.decode())
        self.assertIn("undetermined", run("compare", a, write("few.json", [50.0, 51.0]), "--fail-on", "3%").stdout.decode())
        self.assertIn("no test in common", run("compare", a, write("t.json", [100.0] * 6, n_threads=1), status=1).stderr.decode())
        self.assertIn("same settings", run("compare", a, write("f.json", [100.0] * 6, flash_attn=False), status=1).stderr.decode())
        self.assertIn("different machines", run("compare", a, write("m.json", [100.0] * 6, cpu_info="d"), status=1).stderr.decode())
        self.assertIn("no results", run("compare", a, self.write("x.json", "{}"), status=1).stderr.decode())
        self.assertIn("percentage", run("compare", a, b, "--fail-on", "3", status=2).stderr.decode())
        self.assertIn("two results", run("compare", a, status=2).stderr.decode())

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)


if __name__ == "__main__":
    unittest.main()
