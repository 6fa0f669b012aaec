"""`ridge lab` over each of its subjects: this program's commands on a tiny model, stand-ins for llama.cpp's programs, a server by its URL.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/lab_subjects_test.py
"""
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

try:
    from tiny_model import write_tiny_model
    MISSING = ""
except ImportError as error:
    MISSING = f"writes a model with the gguf package: {error}"

RIDGE = os.environ.get("RIDGE_BIN", "build/release/bin/ridge")

# llama-server as far as the lab needs it; "-t 9" is a server that cannot start.
FAKE_SERVER = r'''#!/usr/bin/env python3
import http.server, json, sys
if "--version" in sys.argv:
    print("version: 7000 (abcdef0)")
    sys.exit()
def flag(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default
if flag("-t", "1") == "9":
    print("error: no such number of threads", file=sys.stderr)
    sys.exit(1)
print(f"system_info: n_threads = {flag('-t', '1')} (n_threads_batch = {flag('-t', '1')}) / 2", file=sys.stderr)
print("llama_context: n_ctx         = 2048", file=sys.stderr)
print(f"llama_kv_cache: size = 2.00 MiB, K ({flag('-ctk', 'f16')}): 1.00 MiB, V (f16): 1.00 MiB", file=sys.stderr)
sys.stderr.flush()
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass
    def answer(self, text, kind="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def do_GET(self):
        self.answer(json.dumps({"/props": {"build_info": "b7000-abcdef0", "total_slots": 1, "default_generation_settings": {"n_ctx": 2048}},
                                "/v1/models": {"data": [{"id": "m"}]}}.get(self.path, {})).encode())
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][0]["content"]
        text = "Paris is the capital." if "France" in prompt else "no no no no no no no no no no no no no no"
        events = [{"choices": [{"delta": {"content": text[:3]}}]}, {"choices": [{"delta": {"content": text[3:]}, "finish_reason": "stop"}]},
                  {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}, "timings": {"prompt_per_second": 1000.0, "predicted_per_second": 50.0}}]
        self.answer(b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events) + b"data: [DONE]\n\n", "text/event-stream")
http.server.ThreadingHTTPServer(("127.0.0.1", int(flag("--port", "0"))), Handler).serve_forever()
'''
FAKE_BENCH = r'''#!/bin/sh
t=1; while [ $# -gt 0 ]; do case $1 in -t) t=$2;; esac; shift; done
echo "[{\"n_prompt\": 8, \"n_gen\": 0, \"n_threads\": $t, \"build_commit\": \"abcdef0\", \"build_number\": 7000, \"model_size\": 100, \"avg_ts\": 100.5}]"
'''
FAKE_BATCHED = r'''#!/bin/sh
npl=1; while [ $# -gt 0 ]; do case $1 in -npl) npl=$2;; esac; shift; done
echo "{\"n_kv_max\": 2048, \"n_threads\": 2, \"pp\": 64, \"tg\": 16, \"pl\": $npl, \"n_kv\": 80, \"t_pp\": 0.5, \"speed_pp\": 128, \"t_tg\": 0.4, \"speed_tg\": 40, \"t\": 0.9, \"speed\": 88.9}"
'''
FAKE_CLI = r'''#!/bin/sh
if [ "$1" = --version ]; then echo "version: 7000 (abcdef0)" >&2; exit; fi
t=1; while [ $# -gt 0 ]; do case $1 in -t) t=$2;; -p) p=$2;; esac; shift; done
echo "system_info: n_threads = $t (n_threads_batch = $t) / 2" >&2
printf '\nbanner\n\n> %s\n\nParis is the capital.\n\n[ Prompt: 123.4 t/s | Generation: 56.7 t/s ]\n\nExiting...\n' "$p"
'''


def run(*args, status=0, cwd=None):
    done = subprocess.run([RIDGE, "lab", *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=300, cwd=cwd)
    if done.returncode != status:
        raise AssertionError(f"{args}: status {done.returncode}, {done.stderr.decode()}")
    return done


class Subjects(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def program(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), os.stat(self.path(name)).st_mode | stat.S_IXUSR)
        return self.path(name)

    def experiment(self, subject, variable, base="", work="", head=""):
        with open(self.path("e.toml"), "w", encoding="utf-8") as file:
            file.write(f'[experiment]\nname = "test"\nblocks = 1\nsubject = "{subject}"\n{head}\n[base]\n{base}\n')
            file.write((f"[work]\n{work}\n" if work else "") + f"[variable]\n{variable}\n")
        return self.path("e.toml")

    def record(self, number):
        with open(self.path(f"e.lab/runs/{number:04}.json"), encoding="utf-8") as file:
            return json.load(file)

    def figures(self, document):
        return [f["test"] for f in document["findings"] if f["arm"] == 0]

    def tiny(self):
        model = self.path("tiny.gguf")
        write_tiny_model(model)
        return model

    ASKED = ["decode", "prefill", "first token", "whole answer", "throughput"]

    @unittest.skipIf(MISSING, MISSING)
    def test_run_and_serve_answer_the_same(self):
        work = 'prompts = ["A B", "C"]\nchat = false\nmax_tokens = 4\nignore_eos = true'
        toml = self.experiment("run", 'flag = "subject"\nvalues = ["run", "serve"]', f'm = "{self.tiny()}"\nt = 1\nc = 256\nspec = "off"', work)
        document = json.loads(run("run", toml, "--json").stdout)
        self.assertEqual(self.figures(document), self.ASKED)
        records = [self.record(n) for n in range(6)]
        self.assertEqual({r["subject"] for r in records}, {"run", "serve"})
        answers = {tuple(q["text"] for q in r["requests"]) for r in records}
        self.assertEqual(len(answers), 1, answers)  # the same bits, over HTTP or not
        for r in records:
            self.assertEqual([q["output_tokens"] for q in r["requests"]], [4, 4])
            self.assertEqual([q["finish_reason"] for q in r["requests"]], ["length", "length"])
            self.assertIn("ridge", r["version"])
            self.assertEqual(r["model_bytes"], os.path.getsize(self.path("tiny.gguf")))
        run("check", self.path("e.lab"))

    @unittest.skipIf(MISSING, MISSING)
    def test_a_switch_and_the_concurrency_are_variables(self):
        model = self.tiny()
        toml = self.experiment("serve", 'flag = "no-prefix-cache"\nvalues = [false, true]', f'm = "{model}"\nt = 1\nc = 512\nnp = 1',
                               'prompts = ["A", "B"]\nprefix_words = 40\nchat = false\nmax_tokens = 2')
        run("run", toml)
        cached = {r["settings"]["prefix_cache"]: [q["cached_tokens"] for q in r["requests"]] for r in map(self.record, range(6))}
        self.assertEqual(cached[False], [0, 0])
        self.assertGreater(cached[True][1], 32)
        toml = self.experiment("serve", 'flag = "concurrency"\nvalues = [1, 2]', f'm = "{model}"\nt = 1\nc = 256\nnp = 2',
                               'prompts = ["A"]\nrequests = 4\nchat = false\nmax_tokens = 3\nignore_eos = true')
        document = json.loads(run("run", toml, "--json", "-o", self.path("c.lab")).stdout)
        self.assertIn("throughput", self.figures(document))
        toml = self.experiment("serve", 'flag = "np"\nvalues = [1, 2]', f'm = "{model}"\nt = 1\nc = 256', 'prompts = ["A"]\nchat = false\nmax_tokens = 2')
        run("run", toml, "-o", self.path("np.lab"))

    @unittest.skipIf(MISSING, MISSING)
    def test_batched_bench_tells_its_settings(self):
        toml = self.experiment("batched-bench", 'flag = "npl"\nvalues = [1, 2]', f'm = "{self.tiny()}"\nnpp = 8\nntg = 4\nt = 1')
        document = json.loads(run("run", toml, "--json").stdout)
        self.assertEqual(self.figures(document), ["prefill pp8 tg4 x1", "decode pp8 tg4 x1", "all pp8 tg4 x1"])
        toml = self.experiment("batched-bench", 'flag = "ngl"\nvalues = [0, 9]', f'm = "{self.path("tiny.gguf")}"\nnpp = 8\nntg = 4\nt = 1')
        self.assertIn("the variable did not move: ngl", run("run", toml, "-o", self.path("ngl.lab"), status=1).stderr.decode())

    @unittest.skipIf(MISSING, MISSING)
    def test_a_benchmark_is_asked_beside_it(self):
        toml = self.experiment("bench", 'flag = "ub"\nvalues = [8, 16]', f'm = "{self.tiny()}"\np = 16\nn = 0\nt = 1', 'prompts = ["A B"]\nchat = false\nmax_tokens = 3')
        document = json.loads(run("run", toml, "--json").stdout)
        self.assertEqual(document["samples"], 6)  # the answers are no samples
        asked = [self.record(n) for n in (6, 7)]
        self.assertEqual([a["settings"]["n_ubatch"] for a in asked], [8, 16])
        self.assertEqual(asked[0]["requests"][0]["text"], asked[1]["requests"][0]["text"])
        run("check", self.path("e.lab"))

    @unittest.skipIf(MISSING, MISSING)
    def test_a_server_by_its_url(self):
        server = subprocess.Popen([RIDGE, "serve", "-m", self.tiny(), "--port", "0", "-t", "1", "-c", "256", "-a", "tiny", "--json"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        text = ""
        while not text.endswith("}\n") or text.count("{") != text.count("}"):
            text += server.stdout.readline().decode()
        self.addCleanup(server.stdout.close)
        url = json.loads(text)["url"]
        toml = self.experiment("url", 'flag = "concurrency"\nvalues = [1, 2]', "", 'prompts = ["A", "B"]\nchat = false\nmax_tokens = 3', f'url = "{url}/v1"\nmodel = "tiny"')
        document = json.loads(run("run", toml, "--json").stdout)
        self.assertEqual(self.figures(document), self.ASKED)
        toml = self.experiment("url", 'flag = "concurrency"\nvalues = [1, 2]', "", "", 'url = "http://127.0.0.1:1"')
        self.assertIn("does not answer", run("run", toml, "-o", self.path("none.lab"), status=1).stderr.decode())

    def test_programs_of_llama_cpp(self):
        for name, text in (("llama-server", FAKE_SERVER), ("llama-bench", FAKE_BENCH), ("llama-batched-bench", FAKE_BATCHED), ("llama-cli", FAKE_CLI)):
            self.program(name, text.replace("/usr/bin/env python3", sys.executable))
        head, model = f'program = "{self.folder}/"', 'm = "a.gguf"'
        toml = self.experiment("llama-server", 'flag = "t"\nvalues = [1, 2]', model, "prompts = 3", head)
        document = json.loads(run("run", toml, "--json").stdout)
        self.assertEqual(self.figures(document), self.ASKED)
        record = self.record(0)
        self.assertEqual(record["version"], "llama.cpp server b7000-abcdef0")
        self.assertEqual([q["prompt_id"] for q in record["requests"]], ["en-fact", "zh-fact", "en-json"])
        self.assertEqual(record["settings"]["type_k"], "f16")
        # A setting that the server does not have ends with what it says.
        toml = self.experiment("llama-server", 'flag = "t"\nvalues = [1, 9]', model, "prompts = 1", head)
        self.assertIn("it ended by itself", run("run", toml, "-o", self.path("t9.lab"), status=1).stderr.decode())
        # The command line against the server, each named as its subject in the folder.
        toml = self.experiment("llama-cli", 'flag = "subject"\nvalues = ["llama-cli", "llama-server"]', model, "prompts = 2", head)
        run("run", toml, "-o", self.path("cli.lab"))
        with open(self.path("cli.lab/runs/0000.json"), encoding="utf-8") as file:
            first = json.load(file)
        with open(self.path("cli.lab/runs/0001.json"), encoding="utf-8") as file:
            pair = {first["subject"]: first, (second := json.load(file))["subject"]: second}
        self.assertEqual(pair["llama-cli"]["requests"][0]["text"], "Paris is the capital.")
        self.assertEqual(pair["llama-cli"]["requests"][0]["timings"], {"prompt_per_second": 123.4, "predicted_per_second": 56.7})
        self.assertEqual(pair["llama-cli"]["version"], "llama-cli 7000 (abcdef0)")
        toml = self.experiment("llama-batched-bench", 'flag = "npl"\nvalues = [1, 2]', model, "", head)
        self.assertEqual(self.figures(json.loads(run("run", toml, "--json", "-o", self.path("b.lab")).stdout))[1], "decode pp64 tg16 x1")
        # A build without a GPU backend repeats the -ngl that was typed: no layer is there, and the comparison is none.
        self.program("llama-bench", FAKE_BENCH.replace('\\"n_threads\\": $t', '\\"n_threads\\": 1, \\"n_gpu_layers\\": $ngl, \\"backends\\": \\"$backends\\", \\"gpu_info\\": \\"\\"')
                     .replace("-t) t=$2;;", "-ngl) ngl=$2;;").replace("t=1;", f"ngl=0; backends=$(cat {self.folder}/backends);"))
        toml = self.experiment("llama-bench", 'flag = "ngl"\nvalues = [0, 99]', model, "", head)
        for backends, status in (("CPU", 1), ("CPU,BLAS", 1), ("CUDA", 0)):
            with open(self.path("backends"), "w", encoding="utf-8") as file:
                file.write(backends)
            done = run("run", toml, "-o", self.path(f"{backends}.lab"), status=status)
            self.assertEqual("the variable did not move" in done.stderr.decode(), status == 1, backends)
        self.program("llama-bench", FAKE_BENCH)
        # llama-bench is asked through the server beside it; without one the reason stands in the record and the speeds stay.
        toml = self.experiment("llama-bench", 'flag = "t"\nvalues = [1, 2]', model, "prompts = 1", head)
        run("run", toml, "-o", self.path("bench.lab"))
        with open(self.path("bench.lab/runs/0006.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["requests"][0]["text"], "Paris is the capital.")
        os.remove(self.path("llama-server"))
        run("run", toml, "-o", self.path("alone.lab"))
        with open(self.path("alone.lab/runs/0006.json"), encoding="utf-8") as file:
            self.assertIn("there is no", json.load(file)["not_asked"])

    def test_a_port_that_another_took_in_between_is_left_to_it(self):
        # The first time that this server is started somebody else listens on its port: a copy of it that answers, but is not the one that was started.
        thief = self.path("thief")
        theft = f"""
import os, subprocess, time, urllib.request
if flag("--port", "0") != "0" and "thief" not in sys.argv and not os.path.exists({thief!r}):
    with open({thief!r}, "w") as file:
        print(subprocess.Popen([sys.executable, *sys.argv, "thief"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid, file=file)
    while True:
        try:
            urllib.request.urlopen("http://127.0.0.1:" + flag("--port", "0") + "/health")
            break
        except OSError:
            time.sleep(0.01)
    sys.exit("the address is in use")
class Handler("""
        self.program("llama-server", FAKE_SERVER.replace("/usr/bin/env python3", sys.executable).replace("\nclass Handler(", theft, 1))
        toml = self.experiment("llama-server", 'flag = "t"\nvalues = [1, 2]', 'm = "a.gguf"', "prompts = 1", f'program = "{self.folder}/"')
        try:
            document = json.loads(run("run", toml, "--json").stdout)
        finally:
            with open(thief, encoding="utf-8") as file:
                os.kill(int(file.read()), signal.SIGKILL)
        self.assertEqual(self.figures(document), self.ASKED)

    def test_a_command_line_tells_its_bottleneck(self):
        # What bounds decoding stands in the account of each answer; here of a program that only says so.
        program = self.program("ridge", r'''#!/bin/sh
if [ "$1" = --version ]; then echo "ridge fake"; exit; fi
t=1; while [ $# -gt 0 ]; do case $1 in -t) t=$2;; esac; shift; done
if [ $t = 1 ]; then bound=\"memory\" share=0.8; else bound=\"arithmetic\" share=0.6; fi
echo "{\"config\": {\"n_threads\": $t}, \"text\": \"Paris\", \"finish_reason\": \"stop\", \"ttft_ms\": 10, \"predicted_ms\": 90, \"predicted_n\": 10, \"prompt_n\": 5, \"cache_n\": 0, \"prompt_per_second\": 500, \"predicted_per_second\": 100, \"bound\": $bound, \"ceiling_share\": $share, \"ceiling_reason\": null}"
''')
        toml = self.experiment("run", 'flag = "t"\nvalues = [1, 2]', 'm = "a.gguf"', "prompts = 2", f'program = "{program}"')
        document = json.loads(run("run", toml, "--json").stdout)
        self.assertIn("decode: the bottleneck moved: t = 1: memory bandwidth (80 % of the ceiling), t = 2: arithmetic (60 % of the ceiling).", document["seen"])
        text = run("report", self.path("e.lab"), "--lang", "en").stdout.decode()
        self.assertIn("| decode | 1 | 100 t/s | 125 t/s | 80 % | memory bandwidth | 8.00 ms | in the rest | 2.00 ms |", text)
        checked = json.loads(run("check", self.path("e.lab"), "--rederive", "--json").stdout)
        self.assertTrue({a["id"]: a["met"] for a in checked["acceptance"]}["bottleneck"])

    def test_openvino_without_its_package_says_so(self):
        python = self.program("python", "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'openvino_genai'\" >&2\nexit 1\n")
        toml = self.experiment("openvino", 'flag = "t"\nvalues = [1, 2]', 'm = "model"', "prompts = 1", f'program = "{python}"')
        self.assertIn("No module named 'openvino_genai'", run("run", toml, status=1).stderr.decode())

    def test_ready_made_experiments(self):
        names = [r["name"] for r in json.loads(run("list", "--json").stdout)]
        for name in ("offload", "context", "format", "threads", "cli-vs-server", "runtimes", "power-mode", "observer", "isa", "batch", "kv-type", "flash-attention",
                     "fusion", "blas", "concurrency", "prefix-cache", "speculation", *(f"homework-{n}" for n in range(1, 8))):
            self.assertIn(name, names)
        self.assertIn("ridge lab list", run("run", "nonsense", status=1).stderr.decode())
        self.assertIn("a model is needed", run("run", "threads", status=2, cwd=self.folder).stderr.decode())

    @unittest.skipIf(MISSING, MISSING)
    def test_the_trace_holds_phases_steps_and_ops_unless_nothing_is_observed(self):
        toml = self.experiment("bench", 'flag = "observer"\nvalues = ["off", "on"]', f'm = "{self.tiny()}"\nt = 1\np = 40\nn = 40\nub = 8')
        run("run", toml, "-o", self.path("o.lab"))
        with open(self.path("o.lab/trace.json"), encoding="utf-8") as file:
            events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X"]
        runs = [e for e in events if e["cat"] == "run"]
        for one in runs:
            inside = [e for e in events if e["tid"] == one["tid"] and one["ts"] <= e["ts"] <= one["ts"] + one["dur"]]
            kinds = {kind: [e for e in inside if e["cat"] == kind] for kind in ("phase", "step", "op")}
            number = one["args"]["run"]
            self.assertEqual(os.path.exists(self.path(f"o.lab/runs/{number:04}.monitor.csv")), "= on" in one["name"])
            if "= off" in one["name"]:
                self.assertEqual((kinds["step"], kinds["op"]), ([], []))
                continue
            self.assertIn("attention", {e["name"] for e in kinds["op"]})
            self.assertEqual({e["name"] for e in kinds["step"]}, {"prefill step", "decode step"})
            for inner, outer in (("op", "step"), ("step", "phase")):
                for e in kinds[inner]:
                    self.assertTrue(any(o["ts"] - 1 <= e["ts"] and e["ts"] + e["dur"] <= o["ts"] + o["dur"] + 1 for o in kinds[outer]), (inner, e))
        self.assertEqual(sum("= on" in one["name"] for one in runs), 2)
        run("check", "--rederive", self.path("o.lab"))

    @unittest.skipIf(MISSING, MISSING)
    def test_what_this_device_cannot_run_is_a_result(self):
        model = self.tiny()
        if os.path.exists("/proc/driver/nvidia/version"):
            self.skipTest("a machine without an NVIDIA driver is needed")
        document = json.loads(run("run", "offload", "-m", model, "-o", self.path("o.lab"), "--json").stdout)
        self.assertEqual(document["not_run"], {"99": "no NVIDIA driver: /proc/driver/nvidia/version is not there"})
        self.assertEqual(document["findings"], [])
        run("check", self.path("o.lab"))
        self.assertIn("no NVIDIA driver", run("report", self.path("o.lab")).stdout.decode())
        log = self.path("tegrastats.log")
        with open(log, "w", encoding="utf-8") as file:
            file.write("RAM 330/3964MB (lfb 758x4MB) CPU [1%@102,0%@102] EMC_FREQ 3%@204 GR3D_FREQ 7%@76 PLL@23C CPU@25C POM_5V_IN 933/933\n" * 3)
        text = run("run", "homework-1", "-m", model, "-o", self.path("h.lab"), "--from", log).stdout.decode()
        self.assertIn("Not run on this device: ngl = 99", text)
        self.assertIn("As recorded in tegrastats.log (tegrastats, 3 samples)", text)
        self.assertRegex(text, r"power_total_mw \| 933")
        self.assertIn("本机未运行：ngl = 99：没有 NVIDIA 驱动", text)
        # The log is evidence like all else, and the report has the answer in both languages.
        run("check", "--rederive", self.path("h.lab"))
        with open(self.path("h.lab/report.html"), encoding="utf-8") as file:
            page = file.read()
        for words in ("As recorded in tegrastats.log", "tegrastats.log 中的记录", "作业 1", "Homework 1"):
            self.assertIn(words, page)
        with open(self.path("h.lab/recorded/tegrastats.log"), "a", encoding="utf-8") as file:
            file.write("\n")
        self.assertIn("recorded/tegrastats.log: differs", run("check", self.path("h.lab"), status=1).stderr.decode())
        self.assertIn("holds another recorded log", run("run", "homework-1", "-m", model, "-o", self.path("h.lab"), "--from", log, status=1).stderr.decode())
        self.assertIn("--from", run("run", "offload", "-m", model, "-o", self.path("n.lab"), "--from", log, status=2).stderr.decode())
        run("run", "threads", "-m", model, "--write", self.path("t.toml"))
        with open(self.path("t.toml"), encoding="utf-8") as file:
            self.assertTrue(re.search(r'flag = "t"', file.read()))


if __name__ == "__main__":
    unittest.main()
