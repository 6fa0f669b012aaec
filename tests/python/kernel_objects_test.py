"""Objects compiled for one ISA define nothing that the linker may merge with common code (see docs/adding-a-kernel.md)."""
import glob
import os
import platform
import shutil
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OBJECTS = sorted(glob.glob(os.path.join(ROOT, "build", "*", "src", "CMakeFiles", "ridge_backend.dir", "backend", "cpu", "kernels", "target_*.o")))


class KernelObjects(unittest.TestCase):
    @unittest.skipUnless(shutil.which("nm"), "nm (binutils) is not installed")
    @unittest.skipUnless(OBJECTS, "no build of this tree has kernel objects (RIDGE_BIN names a program from elsewhere)")
    def test_no_weak_symbols(self):
        for path in OBJECTS:
            if "/fuzz/" in path or "/dev/" in path or "/tsan/" in path or "/arm64/" in path:
                continue  # sanitizers add weak symbols of their own; nm reads its own processor's objects
            with self.subTest(os.path.basename(path)):
                table = subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True).stdout
                weak = [line for line in table.splitlines() if len(line.split()) > 1 and line[17:18] in "WVuv"]
                self.assertEqual(weak, [])
                if ("neon" in path) == (platform.machine() in ("x86_64", "AMD64")) and "scalar" not in path:
                    self.assertEqual(table, "", "a target of another kind of processor is empty")
                    continue
                self.assertTrue(any(line[17:18] in "TDBR" for line in table.splitlines()), "nothing defined at all")


if __name__ == "__main__":
    unittest.main()
