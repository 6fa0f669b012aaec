"""`ridge monitor`: samples of this machine, and logs recorded elsewhere.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/monitor_test.py
"""
import csv
import io
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

RIDGE = os.environ.get("RIDGE_BIN", "build/release/bin/ridge")
LOGS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden", "monitor")


def run(*args, status=0, text=None):
    done = subprocess.run([RIDGE, "monitor", *args], input=text, stdin=subprocess.DEVNULL if text is None else None, capture_output=True, timeout=60)
    if done.returncode != status:
        raise AssertionError(f"{args}: status {done.returncode}, {done.stderr.decode()}")
    return done


def log(name):
    return os.path.join(LOGS, name)


class Live(unittest.TestCase):
    def test_samples_are_stamped_and_say_what_is_missing(self):
        d = json.loads(run("--count", "3", "--interval", "30", "--pid", str(os.getpid()), "--json").stdout)
        self.assertEqual(len(d["samples"]), 3)
        before = 0
        for sample in d["samples"]:
            self.assertLess(before, sample["before_s"])
            self.assertLessEqual(sample["before_s"], sample["after_s"])
            before = sample["after_s"]
        first, last = d["samples"][0], d["samples"][-1]
        self.assertIsNone(first["fields"]["cpu_use_percent"])
        self.assertEqual(first["reasons"]["cpu_use_percent"], "a rate needs two samples")
        self.assertGreater(last["fields"]["mem_available_mb"], 0)
        self.assertGreater(last["fields"]["process_rss_mb"], 0)
        self.assertEqual(set(first["fields"]), set(last["fields"]))
        missing = {m["what"]: m["reason"] for m in d["missing"]}
        self.assertNotIn("process", missing)
        for what, field in (("temperature", "temp_"), ("cpu energy", "power_")):
            self.assertEqual(what in missing, not any(name.startswith(field) for name in last["fields"]), what)
        self.assertTrue(all(missing.values()))
        self.assertGreaterEqual(d["observer_cpu_percent"], 0)

    def test_csv(self):
        done = run("--count", "2", "--interval", "20")
        rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
        self.assertEqual(len(rows), 2)
        self.assertEqual(rows[0]["cpu_use_percent"], "")  # not known, so nothing
        self.assertGreater(float(rows[1]["mem_total_mb"]), 0)
        self.assertIn("no process: no --pid was given", done.stderr.decode())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.csv")
            self.assertEqual(run("--count", "2", "--interval", "20", "--csv", path).stdout, b"")
            with open(path, encoding="utf-8") as file:
                self.assertEqual(len(list(csv.DictReader(file))), 2)

    def test_ctrl_c_is_a_good_end(self):
        child = subprocess.Popen([RIDGE, "monitor", "--interval", "20"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3):
            child.stdout.readline()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=20)
        self.assertEqual(child.returncode, 0, err)
        self.assertIn(b"watching took", err)
        self.assertTrue(out.endswith(b"\n") or out == b"")

    def test_bad_settings_are_refused(self):
        for args in (["--interval", "0"], ["--count", "-1"], ["--pid", "-3"], ["--json"], ["--format", "dmon"]):
            self.assertIn(args[0], run(*args, status=2).stderr.decode())
        self.assertIn("No such file or directory", run("--count", "1", "--csv", "/nowhere/x.csv", status=1).stderr.decode())
        self.assertIn("No such file or directory", run("--from", log("dmon.txt"), "--csv", "/nowhere/x.csv", status=1).stderr.decode())

    def test_a_process_that_is_not_there(self):
        child = subprocess.Popen(["sleep", "60"])
        child.kill()
        child.wait()
        self.assertIn("no such process", run("--count", "1", "--pid", str(child.pid), status=1).stderr.decode())

    def test_a_process_that_ends_is_told(self):
        child = subprocess.Popen(["sleep", "60"])
        monitor = subprocess.Popen([RIDGE, "monitor", "--interval", "20", "--pid", str(child.pid)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        lines = [monitor.stderr.readline()]  # what this machine does not offer: the process was found
        child.kill()
        child.wait()
        while lines[-1] and b"no process_*" not in lines[-1]:
            lines.append(monitor.stderr.readline())
        self.assertIn(b"the process is not there", lines[-1], lines)
        monitor.send_signal(signal.SIGINT)
        monitor.communicate(timeout=20)

    def test_another_file_is_not_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log.txt")
            shutil.copy(log("dmon.txt"), path)
            for args in (["--from", path], ["--count", "1"]):
                self.assertIn("would replace", run(*args, "--csv", path, status=1).stderr.decode())
            with open(path, "rb") as file, open(log("dmon.txt"), "rb") as original:
                self.assertEqual(file.read(), original.read())
            mine = os.path.join(folder, "mine.csv")
            for _ in range(2):
                run("--count", "1", "--csv", mine)
                run("--from", path, "--csv", mine)


class Recorded(unittest.TestCase):
    def document(self, name, *args):
        return json.loads(run("--from", log(name), *args, "--json").stdout)

    def test_kinds_are_found_out(self):
        for name, kind, samples in (("tegrastats.txt", "tegrastats", 30), ("dmon.txt", "dmon", 4), ("vllm.txt", "vllm", 3), ("llama-server-old.txt", "llama-server", 2),
                                    ("llama-cli.txt", "llama-server", 1), *((f"llama-bench-{f}.txt", "llama-bench", 2) for f in ("md", "csv", "json", "jsonl", "sql"))):
            d = self.document(name)
            self.assertEqual((d["kind"], len(d["samples"])), (kind, samples), name)

    def test_what_is_off_is_null_with_a_reason_and_what_is_unknown_is_kept(self):
        samples = self.document("tegrastats.txt")["samples"]
        off = next(s for s in samples if s["time"] == "01-03-2023 16:07:54")
        self.assertIsNone(off["fields"]["temp_gpu_c"])
        self.assertEqual(off["reasons"]["temp_gpu_c"], "sensor is off")
        self.assertEqual(off["fields"]["power_total_from"], "sum of 4 rails")
        self.assertEqual([s["unknown"] for s in samples if "FUTURE_ENGINE" in s["unknown"]], [["FUTURE_ENGINE", "ready", "SOMETHING{x}"]])
        self.assertEqual(self.document("dmon.txt")["samples"][3]["reasons"]["pwr_w"], "the log says ERR")

    def test_summary_and_csv(self):
        text = run("--from", log("tegrastats.txt")).stdout.decode()
        self.assertRegex(text, r"(?m)^temp_gpu_c +\d+ .*x sensor is off")
        self.assertIn("not known, kept as it is: FUTURE_ENGINE (1 x)", text)
        rows = list(csv.DictReader(io.StringIO(run("--from", log("tegrastats.txt"), "--csv", "-").stdout.decode())))
        self.assertEqual(len(rows), 30)
        self.assertEqual(rows[10]["temp_gpu_c"], "")
        self.assertEqual(rows[21]["unknown"], "FUTURE_ENGINE ready SOMETHING{x}")

    def test_stdin_and_bad_logs(self):
        with open(log("dmon.txt"), "rb") as file:
            self.assertEqual(json.loads(run("--from", "-", "--json", text=file.read()).stdout)["kind"], "dmon")
        self.assertIn("no sample", run("--from", log("vllm.txt"), "--format", "dmon", status=1).stderr.decode())
        self.assertIn("cannot open", run("--from", "/nowhere", status=1).stderr.decode())
        self.assertIn("unknown kind", run("--from", log("vllm.txt"), "--format", "syslog", status=2).stderr.decode())
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("a directory", run("--from", folder, status=1).stderr.decode())
            pipe = os.path.join(folder, "pipe")
            os.mkfifo(pipe)
            child = subprocess.Popen(["cp", log("dmon.txt"), pipe])
            self.assertEqual(json.loads(run("--from", pipe, "--json").stdout)["kind"], "dmon")
            child.wait()
        hostile = run("--from", "-", text=b"RAM 1/2MB \x1b[31m\xff CPU [1%@2]\n").stdout.decode()
        self.assertNotIn("\x1b", hostile)


if __name__ == "__main__":
    unittest.main()
