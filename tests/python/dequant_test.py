"""Every tensor type through `ridge inspect --tensor NAME --dump FILE`, against the `gguf` Python package bit for bit.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/dequant_test.py

Random blocks that hold no NaN and no infinity; with RIDGE_MODELS=FOLDER also the tensors of the real files there.
"""
import glob
import os
import subprocess
import tempfile
import unittest

try:
    import gguf
    import numpy as np
    MISSING = ""
except ImportError as error:
    MISSING = f"compares with the Python packages gguf and numpy: {error}"

RIDGE = os.environ.get("RIDGE_BIN", "build/release/bin/ridge")
BLOCKS = 200
SEED = 20260802
LARGEST = 8_000_000  # elements of a real tensor that is compared: the big ones are of the types of the small ones
TYPES = ("F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS "
         "IQ3_S IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4 NVFP4 Q1_0").split()


def decode_q8_k(raw):
    raw = raw.reshape(-1, 292)
    return raw[:, :4].copy().view(np.float32) * raw[:, 4:260].copy().view(np.int8).astype(np.float32)


def decode_q1_0(raw):
    raw = raw.reshape(-1, 18)
    d = raw[:, :2].copy().view(np.float16).astype(np.float32)
    return np.where(np.unpackbits(raw[:, 2:], axis=1, bitorder="little") == 1, d, -d)


OWN = {"Q8_K": decode_q8_k, "Q1_0": decode_q1_0}  # by their definition: the package only knows their size


def decode(name, raw):
    with np.errstate(all="ignore"):
        values = OWN[name](raw) if name in OWN else gguf.dequantize(raw, gguf.GGMLQuantizationType[name])
    return np.ascontiguousarray(values, np.float32).reshape(len(raw), -1)


def finite_blocks(name, random):
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    if elements == 1:
        elements, size = 8, 8 * size
    raw = np.frombuffer(random.bytes(20 * BLOCKS * size), np.uint8).reshape(-1, size)
    raw = raw[np.isfinite(decode(name, raw)).all(axis=1)][:BLOCKS]
    assert len(raw) == BLOCKS, f"{name}: only {len(raw)} finite blocks"
    return np.ascontiguousarray(raw)


@unittest.skipIf(MISSING, MISSING)
class Dequant(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def dump(self, path, tensor):
        out = os.path.join(self.folder.name, "values.f32")
        command = [RIDGE, "inspect", path, "--tensor", tensor, "--dump", out]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return np.fromfile(out, np.uint32)

    def compare(self, path, tensor, want):
        got = self.dump(path, tensor)
        want = want.reshape(-1).view(np.uint32)
        self.assertEqual(got.size, want.size)
        wrong = np.flatnonzero(got != want)
        self.assertEqual(wrong.size, 0, f"{wrong.size} of {want.size} values differ, the first at {wrong[:1]}")

    def test_random_blocks_of_every_type(self):
        random = np.random.default_rng(SEED)
        path = os.path.join(self.folder.name, "blocks.gguf")
        writer = gguf.GGUFWriter(path, "llama")
        blocks = {name: finite_blocks(name, random) for name in TYPES}
        for name, raw in blocks.items():
            data = raw.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))
            writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[name])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        for name, raw in blocks.items():
            with self.subTest(type=name):
                self.compare(path, name, decode(name, raw))

    def test_real_files(self):
        folder = os.environ.get("RIDGE_MODELS", "")
        paths = sorted(glob.glob(os.path.join(folder, "*.gguf"))) if folder else []
        if not paths:
            self.skipTest("RIDGE_MODELS does not name a folder with GGUF files")
        random = np.random.default_rng(SEED)
        for path in paths:
            by_type = {}
            for tensor in gguf.GGUFReader(path).tensors:
                if tensor.n_elements <= LARGEST:
                    by_type.setdefault(tensor.tensor_type.name, []).append(tensor)
            for name, tensors in by_type.items():
                for i in random.choice(len(tensors), min(4, len(tensors)), replace=False):
                    tensor = tensors[i]
                    with self.subTest(file=os.path.basename(path), tensor=tensor.name, type=name):
                        self.compare(path, tensor.name, decode(name, tensor.data.reshape(tensor.data.shape[0], -1)))


if __name__ == "__main__":
    unittest.main()
