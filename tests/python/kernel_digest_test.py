"""Every kernel of every ISA target computes the same bits, on x86-64 and, under emulation, on Arm: one test per target.

ridge_kernel_digest (tests/kernels) prints a hash per kernel and per small program. The scalar target of this machine is the reference.
Targets that this CPU lacks are proved where a way exists: avxvnni in the coding of AVX-512 VNNI, the Arm ones under qemu-aarch64.
"""
import json
import os
import platform
import shutil
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RIDGE = os.environ.get("RIDGE_BIN", os.path.join(ROOT, "build", "release", "bin", "ridge"))
X86 = platform.machine() in ("x86_64", "AMD64")
CROSS, QEMU = "aarch64-linux-gnu-g++", "qemu-aarch64-static"
built = {}


def build(preset, target):
    """Path of the program, built now; the test that asks first waits for it."""
    if (preset, target) not in built:
        run = subprocess.run(["./dev", "build", preset, target], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
        built[preset, target] = os.path.join(ROOT, "build", preset, "tests", "kernels", target)
    return built[preset, target]


def digests(*command):
    """{isa: {kernel: hash}}"""
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)
    assert run.returncode in (0, 1), f"{command} ended with {run.returncode}: {run.stderr[-2000:]}"
    table = {}
    for line in run.stdout.splitlines():
        isa, kernel, value = line.split(" ", 2)
        table.setdefault(isa, {})[kernel] = value
    return table


class KernelDigest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.here = digests(build("release", "ridge_kernel_digest"))
        cls.scalar = cls.here["scalar"]
        cls.arm = None

    def same(self, table, kernels_only=False):
        want = {kernel: value for kernel, value in self.scalar.items() if not (kernels_only and kernel.startswith("graph."))}
        self.assertEqual({k: v for k, v in table.items() if want.get(k) != v}, {}, "not the bits of the scalar target")
        self.assertEqual(sorted(table), sorted(want))

    def on_this_cpu(self, isa):
        if isa not in self.here:
            self.skipTest(f"this CPU has no {isa}")
        self.same(self.here[isa])

    def emulated(self, isa):
        if not X86:
            return self.on_this_cpu(isa)
        for program in (CROSS, QEMU):
            if not shutil.which(program):
                self.skipTest(f"{program} is not installed (./dev test installs it)")
        if KernelDigest.arm is None:
            KernelDigest.arm = digests(QEMU, "-cpu", "max", build("arm64", "ridge_kernel_digest"))
        self.same(KernelDigest.arm[isa])

    def test_reference_is_worth_something(self):
        self.assertGreater(len(self.scalar), 50)
        for kernel, value in self.scalar.items():
            self.assertRegex(value, r"^[0-9a-f]{16}$", kernel)
        for part in ("matmul.", "attention."):  # a hash that two kernels share would mean that nothing of theirs was hashed
            values = [value for kernel, value in self.scalar.items() if kernel.startswith(part)]
            self.assertEqual(len(set(values)), len(values), part)

    def test_avx2(self):
        self.on_this_cpu("avx2")

    def test_avx512(self):
        self.on_this_cpu("avx512")

    def test_avxvnni(self):
        if "avxvnni" in self.here:
            return self.same(self.here["avxvnni"])
        if not X86:
            self.skipTest("this is not an x86-64 machine")
        table = digests(build("release", "ridge_kernel_digest_evex"))
        if not table:
            self.skipTest("this CPU has neither AVX-VNNI nor AVX-512 VNNI with VL")
        self.same(table["avxvnni"], kernels_only=True)

    def test_scalar_on_arm(self):
        self.emulated("scalar")

    def test_neon(self):
        self.emulated("neon")

    def test_neon_i8mm(self):
        self.emulated("neon-i8mm")

    @unittest.skipUnless(X86 and shutil.which(CROSS) and shutil.which(QEMU), f"{CROSS} and {QEMU} are not installed (./dev test installs them)")
    def test_arm_cpus_get_what_they_have(self):
        program = build("arm64", "ridge_kernel_digest")
        said = json.loads(subprocess.run([RIDGE, "doctor", "--kernels", "--json"], capture_output=True, check=True).stdout)
        tiles = {t["name"]: [str(t[key]) for key in ("lanes", "columns", "tokens")] for t in said["targets"]}
        for cpu, isas in (("cortex-a53", []), ("neoverse-n1", ["neon"]), ("max", ["neon", "neon-i8mm"])):
            listed = subprocess.run([QEMU, "-cpu", cpu, program, "--list"], capture_output=True, text=True, check=True).stdout
            self.assertEqual([line.split() for line in listed.splitlines()], [[isa, *tiles[isa]] for isa in ["scalar"] + isas], cpu)


if __name__ == "__main__":
    unittest.main()
