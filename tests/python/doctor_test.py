"""ridge doctor: the document's shape, and that what is wrong with the surroundings is found."""
import json
import os
import subprocess
import tempfile
import unittest

RIDGE = os.environ.get("RIDGE_BIN", os.path.abspath("build/release/bin/ridge"))


def ridge(*arguments, **env):
    run = subprocess.run([RIDGE, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env=dict(os.environ, **env))
    return run.returncode, run.stdout.decode(), run.stderr.decode()


def checks(**env):
    code, out, err = ridge("doctor", "--json", **env)
    assert code == 0 and err == "", (code, err)
    return {check["id"]: check for check in json.loads(out)["checks"]}


class Doctor(unittest.TestCase):
    def test_document(self):
        found = checks()
        for name in ("cpu", "isa", "threads", "cgroup_cpu", "memory", "cgroup_memory", "huge_pages", "build"):
            self.assertIn(name, found)
        for name, check in found.items():
            self.assertIn(check["status"], ("ok", "warn", "fail", "not_applicable"), name)
            self.assertTrue(check["evidence"], name)
            self.assertEqual(check["remedy"] is not None, check["status"] in ("warn", "fail"), check)

    def test_threads_follow_the_affinity_mask(self):
        one = min(os.sched_getaffinity(0))
        run = subprocess.run(["taskset", "-c", str(one), RIDGE, "doctor", "--json"], capture_output=True, timeout=60)
        self.assertEqual(json.loads(run.stdout)["threads"], 1)

    def test_build_is_told(self):
        code, out, _ = ridge("doctor", "--json")
        build = json.loads(out)["build"]
        self.assertEqual(code, 0)
        for name in ("version", "compiler", "build_type", "flags"):
            self.assertTrue(build[name], name)
        git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
        if git.returncode == 0 and build["revision"]:
            self.assertRegex(build["revision"], r"^[0-9a-f]{12}(-dirty)?$")

    def test_an_isa_that_is_not_there(self):
        check = checks(RIDGE_ISA="avx9000")["isa"]
        self.assertEqual(check["status"], "fail")
        self.assertIn("avx9000", check["evidence"])

    def test_a_forced_isa_is_noticed(self):
        check = checks(RIDGE_ISA="scalar")["isa"]
        self.assertEqual(check["status"], "warn")
        self.assertIn("chosen scalar", check["evidence"])

    def test_store_that_cannot_be_written(self):
        with tempfile.NamedTemporaryFile() as file:
            self.assertEqual(checks(RIDGE_HOME=file.name + "/store")["store"]["status"], "fail")

    def test_missing_pip(self):
        self.assertEqual(checks(PATH="/nowhere")["pip"]["status"], "warn")

    def test_text_names_every_check(self):
        code, out, err = ridge("doctor")
        self.assertEqual((code, err), (0, ""))
        for name in checks():
            self.assertRegex(out, rf"(?m)^(ok|warn|fail|-) +{name} ")

    def test_unknown_flag_is_status_2(self):
        code, out, err = ridge("doctor", "--frobnicate")
        self.assertEqual((code, out), (2, ""))
        self.assertRegex(err, r"(?m)^error: ")


if __name__ == "__main__":
    unittest.main()
