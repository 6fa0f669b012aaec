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


# The functions of NVML that are asked for, of two GPUs: the second one has no power sensor and knows no process.
FAKE_NVML = r"""
#include <string.h>
typedef unsigned long long u64;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char* nvmlErrorString(int status) { return status == 3 ? "Not Supported" : "error"; }
int nvmlDeviceGetCount_v2(unsigned* n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** d) { *d = (void*)(u64)(i + 1); return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned n) { strncpy(text, "550.1", n); return 0; }
int nvmlDeviceGetName(void* d, char* text, unsigned n) { strncpy(text, "Fake GPU", n); return 0; }
int nvmlDeviceGetUtilizationRates(void* d, unsigned* rates) { rates[0] = 97; rates[1] = 33; return 0; }
int nvmlDeviceGetMemoryInfo(void* d, u64* m) { m[0] = 16ull << 30; m[2] = 3ull << 30; m[1] = m[0] - m[2]; return 0; }
int nvmlDeviceGetTemperature(void* d, int sensor, unsigned* c) { *c = 61; return sensor; }
int nvmlDeviceGetPowerUsage(void* d, unsigned* mw) { *mw = 123456; return d == (void*)2 ? 3 : 0; }
int nvmlDeviceGetTotalEnergyConsumption(void* d, u64* mj) { static u64 e = 1000; *mj = e += 1000; return 0; }
int nvmlDeviceGetClockInfo(void* d, int type, unsigned* mhz) { *mhz = type == 1 ? 1500 : type == 2 ? 2600 : 0; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void* d, u64* bits) { *bits = 0x44; return 0; }
int nvmlDeviceGetCudaComputeCapability(void* d, int* major, int* minor) { *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetMaxClockInfo(void* d, int type, unsigned* mhz) { *mhz = type == 1 ? 1980 : type == 2 ? 3201 : 0; return 0; }
int nvmlDeviceGetMemoryBusWidth(void* d, unsigned* bits) { *bits = 6144; return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(void* d, unsigned* v) { *v = 5; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(void* d, unsigned* v) { *v = 16; return 0; }
struct process { unsigned pid; u64 bytes; unsigned gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(void* d, unsigned* n, struct process* p) {
  if (d == (void*)2) { *n = 0; return 0; }
  if (*n < 2) { *n = 2; return 7; }
  *n = 2;
  p[0] = (struct process){PID, 512ull << 20, 0, 0};
  p[1] = (struct process){1, 64ull << 20, 0, 0};
  return 0;
}
"""


class Live(unittest.TestCase):
    def test_gpus_are_read_through_nvml(self):
        """With a library of that name before all others: no driver is needed to see how it is called."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            self.skipTest("needs a C compiler for a fake NVML")
        with tempfile.TemporaryDirectory() as folder:
            source, library = os.path.join(folder, "nvml.c"), os.path.join(folder, "libnvidia-ml.so.1")
            with open(source, "w", encoding="utf-8") as file:
                file.write(FAKE_NVML)
            subprocess.run([compiler, "-shared", "-fPIC", "-w", f"-DPID={os.getpid()}", "-o", library, source], check=True, timeout=120)
            env = dict(os.environ, LD_LIBRARY_PATH=folder)
            done = subprocess.run(
                [RIDGE, "monitor", "--count", "2", "--interval", "20", "--pid", str(os.getpid()), "--json"],
                env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
            doctor = subprocess.run([RIDGE, "doctor", "--json"], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
            # An experiment that nothing can be run of still has the machine's account.
            toml = os.path.join(folder, "e.toml")
            with open(toml, "w", encoding="utf-8") as file:
                file.write('[experiment]\nname = "x"\n[base]\nm = "x"\n[variable]\nflag = "ngl"\nvalues = ["0", "99"]\n[not_run]\n99 = "a test"\n')
            subprocess.run([RIDGE, "lab", "run", toml, "-o", os.path.join(folder, "e.lab")], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
            with open(os.path.join(folder, "e.lab", "environment.json"), encoding="utf-8") as file:
                machine = json.load(file)["mlperf"]
        self.assertIn("Fake GPU, compute capability 9.0", {c["id"]: c for c in json.loads(doctor.stdout)["checks"]}["cuda_architecture"]["evidence"])
        told = {"accelerators_per_node": 2, "accelerator_model_name": "Fake GPU, compute capability 9.0", "accelerator_memory_capacity": "16.0 GiB",
                "accelerator_frequency": "1980 MHz at most", "accelerator_host_interconnect": "PCIe generation 5, 16 lanes at most",
                "accelerator_memory_configuration": "6144 bits wide, 3201 MHz at most"}
        self.assertEqual({name: machine[name]["value"] for name in told}, told)
        d = json.loads(done.stdout)
        self.assertNotIn("NVIDIA GPU", {m["what"] for m in d["missing"]})
        fields, reasons = d["samples"][1]["fields"], d["samples"][1]["reasons"]
        want = {"gpu0_pwr_w": 123.456, "gpu0_gtemp_c": 61, "gpu0_sm_percent": 97, "gpu0_mem_percent": 33, "gpu0_mclk_mhz": 2600, "gpu0_pclk_mhz": 1500,
                "gpu0_fb_mb": 3072, "gpu0_fb_total_mb": 16384, "gpu0_power_cap": 1, "gpu0_hw_thermal": 1, "gpu0_hw_slowdown": 0, "gpu0_processes": 2,
                "gpu0_process_mb": 512, "gpu1_process_mb": 0, "gpu1_processes": 0}
        self.assertEqual({name: fields[name] for name in want}, want)
        self.assertGreater(fields["gpu0_mean_w"], 0)
        self.assertIsNone(fields["gpu1_pwr_w"])
        self.assertEqual(reasons["gpu1_pwr_w"], "Not Supported")
        self.assertEqual(reasons["gpu0_enc_percent"], "this version of NVML has no function for it")

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
        mode = d["power_mode"]
        self.assertEqual(mode["current"] is None, bool(mode["reason"]), mode)
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
