#!/usr/bin/env python3
"""Writes tests/golden/dequant/TYPE.txt: what the `gguf` Python package makes of random blocks, for every type it knows.

    python3 tools/make_dequant_golden.py tests/golden/dequant

Lines of a file, hexadecimal without spaces, floats as their 32 bits in 8 digits:
    block BYTES      one block as a file has it
    values FLOATS    what it decodes to
    input FLOATS     values that were encoded by the package (types whose encoder the package has)
    encoded BYTES    the block that came out
Q8_K, Q1_0 and Q2_0, which the package cannot decode, follow their definition below.
"""
import os
import sys

import gguf
import numpy as np

SEED = 20260801
TYPES = ("F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS "
         "IQ3_S IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4 NVFP4 Q1_0 Q2_0").split()
ENCODED = "F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 TQ1_0 TQ2_0 MXFP4".split()
SIZES = {"Q1_0": (128, 18), "Q2_0": (64, 18)}  # ggml-common.h: block_q1_0, block_q2_0


def decode_q8_k(raw):
    return raw[:, :4].copy().view(np.float32) * raw[:, 4:260].copy().view(np.int8).astype(np.float32)


def decode_q1_0(raw):
    d = raw[:, :2].copy().view(np.float16).astype(np.float32)
    bits = np.unpackbits(raw[:, 2:], axis=1, bitorder="little")
    return np.where(bits == 1, d, -d)


def decode_q2_0(raw):
    d = raw[:, :2].copy().view(np.float16).astype(np.float32)
    bits = np.unpackbits(raw[:, 2:], axis=1, bitorder="little").reshape(len(raw), 64, 2).astype(np.int32)
    return (bits[..., 0] + 2 * bits[..., 1] - 1).astype(np.float32) * d


OWN = {"Q8_K": decode_q8_k, "Q1_0": decode_q1_0, "Q2_0": decode_q2_0}


def decode(name, raw):
    with np.errstate(all="ignore"):
        if name in OWN:
            return OWN[name](raw)
        return gguf.dequantize(raw, gguf.GGMLQuantizationType[name]).astype(np.float32).reshape(len(raw), -1)


def floats(row):
    return "".join(f"{bits:08x}" for bits in np.ascontiguousarray(row, np.float32).view(np.uint32))


def main(folder):
    os.makedirs(folder, exist_ok=True)
    for number, name in enumerate(TYPES):
        random = np.random.default_rng([SEED, number])
        elements, size = SIZES.get(name) or gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
        count = 256 if elements == 1 else 8 if elements <= 64 else 3
        raw = np.frombuffer(random.bytes(400 * count * size), np.uint8).reshape(-1, size)
        raw = np.concatenate([np.zeros((1, size), np.uint8), raw[np.isfinite(decode(name, raw)).all(axis=1)][:count]])
        origin = "its definition in this script" if name in OWN else f"gguf {PACKAGE}, numpy {np.__version__}"
        lines = [f"# Origin: tools/make_dequant_golden.py from {origin}.", f"type {name}"]
        for block, values in zip(raw, decode(name, raw)):
            lines += [f"block {block.tobytes().hex()}", f"values {floats(values)}"]
        if name in ENCODED:
            width = max(elements, 32)
            scales = np.float32(10.0) ** np.arange(-3, 3, dtype=np.float32)
            inputs = random.standard_normal((len(scales), width)).astype(np.float32) * scales[:, None]
            inputs = np.concatenate([np.zeros((1, width), np.float32), inputs])
            for row in inputs:
                block = gguf.quantize(row.reshape(1, -1), gguf.GGMLQuantizationType[name])
                lines += [f"input {floats(row)}", f"encoded {np.ascontiguousarray(block).tobytes().hex()}"]
        with open(os.path.join(folder, f"{name}.txt"), "w", encoding="ascii") as f:
            f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    from importlib.metadata import version
    PACKAGE = version("gguf")
    main(sys.argv[1])
