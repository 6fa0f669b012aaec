"""GGUF files against the `gguf` Python package: what it writes, `ridge inspect` reads alike, and the other way round.

RIDGE_BIN names the program. RIDGE_MODELS may name a folder of real models, which are then compared too.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import gguf
    import numpy as np
except ImportError as missing:
    gguf = None
    reason = f"needs the Python packages gguf and numpy: {missing}"

RIDGE = os.environ.get("RIDGE_BIN", "")


def ridge(*args, status=0, **more):
    done = subprocess.run([RIDGE, *map(str, args)], capture_output=True, text=True, timeout=120, **more)
    assert done.returncode == status, f"ridge {args}: status {done.returncode}, expected {status}: {done.stderr}"
    return done


def inspect(path, *args):
    return json.loads(ridge("inspect", path, "--json", *args).stdout)


def native(field):
    """A reader's field as plain Python."""
    value = field.contents()
    return value.tolist() if hasattr(value, "tolist") else value


@unittest.skipIf(not RIDGE, "RIDGE_BIN names no program")
@unittest.skipIf(gguf is None, reason if gguf is None else "")
class Package(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "x.gguf")

    def write(self, path=None, **options):
        w = gguf.GGUFWriter(path or self.path, "llama", **options)
        w.add_uint8("t.u8", 200)
        w.add_int8("t.i8", -3)
        w.add_uint16("t.u16", 60000)
        w.add_int16("t.i16", -300)
        w.add_uint32("t.u32", 4000000000)
        w.add_int32("t.i32", -70000)
        w.add_uint64("t.u64", 2**64 - 1)
        w.add_int64("t.i64", -(2**63))
        w.add_float32("t.f32", 1e-5)
        w.add_float64("t.f64", 0.1)
        w.add_bool("t.yes", True)
        w.add_bool("t.no", False)
        w.add_string("t.text", "日本語\n\x1b[31m")
        w.add_array("t.words", ["a", "", "b c"])
        w.add_array("t.ints", [1, -2, 3])
        w.add_array("t.floats", [0.5, -2.0])
        w.add_array("t.bools", [True, False])
        w.add_array("t.bytes", bytes([0, 255]))
        w.add_array("t.long", [f"w{i}" for i in range(1000)])
        r = np.random.default_rng(5)
        self.norm = r.standard_normal(7, dtype=np.float32)
        self.half = r.standard_normal((3, 5)).astype(np.float16)
        self.blocks = gguf.quantize(r.standard_normal((6, 64), dtype=np.float32), gguf.GGMLQuantizationType.Q8_0)
        w.add_tensor("norm", self.norm)
        w.add_tensor("half", self.half)
        w.add_tensor("w", self.blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()

    def test_values_of_every_type(self):
        self.write()
        found = inspect(self.path)["metadata"]
        want = {"t.u8": 200, "t.i8": -3, "t.u16": 60000, "t.i16": -300, "t.u32": 4000000000, "t.i32": -70000, "t.u64": 2**64 - 1,
                "t.i64": -(2**63), "t.f32": 1e-5, "t.f64": 0.1, "t.yes": True, "t.no": False, "t.text": "日本語\n\x1b[31m",
                "t.words": ["a", "", "b c"], "t.ints": [1, -2, 3], "t.floats": [0.5, -2.0], "t.bools": [True, False], "t.bytes": [0, 255],
                "t.long": {"type": "array[string]", "length": 1000, "first": [f"w{i}" for i in range(8)]}, "general.architecture": "llama"}
        self.assertEqual(found, want)
        self.assertIs(found["t.yes"], True)

    def test_tensors_and_dumps(self):
        self.write()
        out = os.path.join(self.folder.name, "out.f32")
        listed = {t["name"]: t for t in inspect(self.path)["tensors"]}
        for t in gguf.GGUFReader(self.path).tensors:
            entry = listed.pop(t.name)
            self.assertEqual((entry["type"], entry["shape"], entry["offset"], entry["size_bytes"]),
                             (t.tensor_type.name, t.shape.tolist(), t.data_offset, t.n_bytes))
            ridge("inspect", self.path, "--tensor", t.name, "--dump", out)
            want = gguf.dequantize(t.data, t.tensor_type).astype(np.float32).reshape(-1)
            np.testing.assert_array_equal(np.fromfile(out, np.float32), want)
        self.assertEqual(listed, {})

    def test_split_files(self):
        path = os.path.join(self.folder.name, "s.gguf")
        self.write(path, split_max_tensors=1)
        shards = sorted(pathlib.Path(self.folder.name).glob("s-*.gguf"))
        self.assertEqual(len(shards), 3)
        for argument in (*shards, self.folder.name):
            document = inspect(argument)
            self.assertEqual([t["name"] for t in document["tensors"]], ["norm", "half", "w"])
            self.assertEqual(document["metadata"]["general.architecture"], "llama")
        out = os.path.join(self.folder.name, "out.f32")
        ridge("inspect", shards[0], "--tensor", "w", "--dump", out)
        np.testing.assert_array_equal(np.fromfile(out, np.float32),
                                      gguf.dequantize(self.blocks, gguf.GGMLQuantizationType.Q8_0).reshape(-1))
        shards[1].unlink()
        self.assertIn(shards[1].name, ridge("inspect", shards[0], status=1).stderr)

    def test_big_endian_is_refused_by_name(self):
        self.write(endianess=gguf.GGUFEndian.BIG)
        self.assertIn("other byte order", ridge("inspect", self.path, status=1).stderr)

    def test_package_reads_what_ridge_writes(self):
        program = pathlib.Path(RIDGE).parent.parent / "src" / "ridge_gguf_test"
        if not program.exists():
            self.skipTest(f"needs the built {program.name}, which writes the sample")
        subprocess.run([program, "--gtest_filter=WriterTest.WritesTheSampleForOtherReaders"], check=True, capture_output=True,
                       env={**os.environ, "RIDGE_GGUF_SAMPLE": self.path}, timeout=60)
        reader = gguf.GGUFReader(self.path)
        found = {k: native(f) for k, f in reader.fields.items() if not k.startswith("GGUF.")}
        self.assertAlmostEqual(found.pop("test.f32"), 1e-5, delta=1e-12)
        self.assertEqual(found, {"general.architecture": "llama", "general.alignment": 64, "test.u8": 200, "test.i16": -300,
                                 "test.i32": -70000, "test.u64": 2**63, "test.f64": 0.1, "test.bool": True,
                                 "test.words": ["a", "", "日本語"], "test.ints": [-1, 2, 3], "test.floats": [0.5, -2.0],
                                 "test.bools": [True, False]})
        norm, w = reader.tensors
        self.assertEqual(norm.data.tolist(), [1.0, -2.0, 0.25])
        self.assertEqual(w.data.reshape(-1).tolist(), [i % 256 for i in range(136)])

    @unittest.skipIf(not os.environ.get("RIDGE_MODELS"), "RIDGE_MODELS names no folder of real models")
    def test_real_models(self):
        paths = sorted(pathlib.Path(os.environ["RIDGE_MODELS"]).glob("*.gguf"))
        self.assertTrue(paths)
        for path in paths:
            reader, document = gguf.GGUFReader(path), inspect(path)
            self.assertEqual(document["version"], int(reader.fields["GGUF.version"].contents()))
            keys = [k for k in reader.fields if not k.startswith("GGUF.")]
            self.assertEqual(list(document["metadata"]), keys)
            for key in keys:
                found, want = document["metadata"][key], native(reader.fields[key])
                if isinstance(found, dict):
                    self.assertEqual(found["length"], len(want), key)
                    found, want = found["first"], want[:8]
                single = [reader.fields[key].types[-1] == gguf.GGUFValueType.FLOAT32]
                if single[0]:
                    np.testing.assert_array_equal(np.float32(found), np.float32(want), key)
                else:
                    self.assertEqual(found, want, key)
            for entry, t in zip(document["tensors"], reader.tensors, strict=True):
                self.assertEqual((entry["name"], entry["type"], entry["shape"], entry["offset"], entry["size_bytes"]),
                                 (t.name, t.tensor_type.name, t.shape.tolist(), t.data_offset, t.n_bytes))


@unittest.skipIf(not RIDGE, "RIDGE_BIN names no program")
class CommandLine(unittest.TestCase):
    """Files built by hand: no package needed."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "x.gguf")
        self.out = os.path.join(self.folder.name, "out.f32")

    def write(self, tensors, data, name=b"text\x1b[31m\n", keys=1):
        """tensors: (name, shape, type, offset)."""
        n = lambda v, size: v.to_bytes(size, "little")
        s = lambda b: n(len(b), 8) + b
        head = b"GGUF" + n(3, 4) + n(len(tensors), 8) + n(keys, 8) + (s(b"general.name") + n(8, 4) + s(name)) * keys
        for tensor, shape, kind, offset in tensors:
            head += s(tensor) + n(len(shape), 4) + b"".join(n(x, 8) for x in shape) + n(kind, 4) + n(offset, 8)
        head += bytes(-len(head) % 32)
        pathlib.Path(self.path).write_bytes(head + data)

    def error(self, *args, status=1, **more):
        done = ridge(*args, status=status, **more)
        lines = [x for x in done.stderr.splitlines() if x.startswith("error: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        return lines[0]

    def test_unknown_types_are_listed(self):
        self.write([(b"odd", [5, 3], 99, 0), (b"w", [8], 0, 64)], bytes(96))
        odd = inspect(self.path)["tensors"][0]
        self.assertEqual((odd["type"], odd["type_id"], odd["size_bytes"], odd["shape"]), ("unknown(99)", 99, None, [5, 3]))
        self.assertIn("unknown(99)", ridge("inspect", self.path).stdout)
        line = self.error("inspect", self.path, "--tensor", "odd", "--dump", self.out)
        for part in ('"odd"', "type 99", "0 1 2"):
            self.assertIn(part, line)
        self.assertFalse(os.path.exists(self.out))

    def test_names_cannot_control_the_terminal(self):
        self.write([(b"w\x1b[2J\x9b\xc2\x9b", [8], 0, 0)], bytes(32))
        for args in (["inspect", self.path], ["inspect", self.path, "--tensor", "gone"]):
            done = subprocess.run([RIDGE, *args], capture_output=True, timeout=60)
            self.assertNotIn(b"\x1b", done.stdout + done.stderr)
        text = ridge("inspect", self.path).stdout
        self.assertIn("text\\x1b[31m\\n", text)
        self.assertIn("w\\x1b[2J\\x9b\\u009b", text)
        inspect(self.path)  # broken UTF-8 in a name still gives one valid JSON document

    def test_table_columns_line_up(self):
        self.write([(b"a", [8], 0, 0), (b"a.longer.name", [8], 0, 32)], bytes(64), "日本".encode())
        table = ridge("inspect", self.path).stdout.split("\n\n")[2].splitlines()
        self.assertEqual(len({line.index("F32") for line in table[1:]}), 1)
        self.assertEqual(len({len(line) for line in table}), 1)

    def test_one_tensor(self):
        self.write([(b"a", [8], 0, 0), (b"b", [8], 0, 32)], bytes(64))
        self.assertEqual([t["name"] for t in inspect(self.path, "--tensor", "b")["tensors"]], ["b"])
        self.assertIn('"c"', self.error("inspect", self.path, "--tensor", "c"))
        self.assertIn('""', self.error("inspect", self.path, "--tensor", "", status=2))
        self.assertIn("the value is empty: --dump", self.error("inspect", self.path, "--tensor", "b", "--dump", "", status=2))
        document = inspect(self.path, "--tensor", "b", "--dump", self.out)
        self.assertEqual((document["name"], document["dump"]["elements"]), ("b", 8))
        self.assertEqual(os.path.getsize(self.out), 32)

    def test_dump_never_harms_a_file(self):
        self.write([(b"a", [8], 0, 0)], bytes(32))
        whole = pathlib.Path(self.path).read_bytes()
        os.symlink(self.path, self.path + ".link")
        os.link(self.path, self.path + ".hard")
        for out in (self.path, self.path + ".link", self.path + ".hard", os.path.join(self.folder.name, ".", "x.gguf")):
            self.assertIn("model itself", self.error("inspect", self.path, "--tensor", "a", "--dump", out))
        for out in ("/dev/null", self.folder.name, os.path.join(self.folder.name, "no", "out")):
            self.error("inspect", self.path, "--tensor", "a", "--dump", out)
        self.assertEqual(pathlib.Path(self.path).read_bytes(), whole)
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["x.gguf", "x.gguf.hard", "x.gguf.link"])

    def test_a_full_disk_leaves_nothing(self):
        self.write([(b"a", [1 << 16], 0, 0)], bytes(1 << 18))
        pathlib.Path(self.out).write_text("old")
        script = 'ulimit -f 16; exec "$0" inspect "$1" --tensor a --dump "$2"'
        done = subprocess.run(["bash", "-c", script, RIDGE, self.path, self.out], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("error: cannot write file", done.stderr)
        self.assertEqual(pathlib.Path(self.out).read_text(), "old")
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["out.f32", "x.gguf"])

    def test_errors_as_json(self):
        pathlib.Path(self.path).write_bytes(b"GGUF\x01\0\0\0")
        done = ridge("inspect", self.path, "--json", status=1)
        error = json.loads(done.stdout)["error"]
        self.assertEqual((error["code"], error["found"], error["expected"]), ("unsupported", "version 1", "2 or 3"))
        self.assertIn(self.path, error["where"])
        self.error("inspect", self.path + ".gone")
        self.error("inspect", "--dump", "x", self.path, status=2)
        self.error("inspect", status=2)

    def test_a_pipe_is_refused_at_once(self):
        os.mkfifo(self.path)
        self.assertIn("not a regular file", self.error("inspect", self.path))

    def test_stdout_full_or_closed(self):
        self.write([(b"a", [8], 0, 0)], bytes(32))
        for args in ([], ["--json"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([RIDGE, "inspect", self.path, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertTrue(done.stderr.startswith("error: "), done.stderr)


if __name__ == "__main__":
    unittest.main()
