"""`ridge embed`: an encoder and a decoder on random weights against numpy in float64, poolings, texts beside each other, bad input.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/embed_test.py
"""
import json
import os
import subprocess
import tempfile
import unittest

try:
    import gguf
    import numpy as np

    from tiny_model import write_tiny_model
    MISSING = ""
except ImportError as error:
    MISSING = f"writes models with the gguf package: {error}"

RIDGE = os.environ.get("RIDGE_BIN", "build/release/bin/ridge")
WIDTH, HEADS, FFN, LAYERS, CONTEXT = 64, 4, 128, 2, 48
WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "runs"]
TEXTS = ["the cat sat on a mat", "dog", "a dog runs on the mat the cat sat on a mat runs"]


def write_bert(path, pooling=1, seed=3):
    """The weights, name -> float array with rows first."""
    random = np.random.default_rng(seed)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["\u2581" + w for w in WORDS] + [chr(c) for c in range(97, 123)] + ["\u2581" + chr(c) for c in range(97, 123)]
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    if pooling is not None:
        writer.add_uint32("bert.pooling_type", pooling)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 5 + [1] * (len(tokens) - 5))
    writer.add_uint32("tokenizer.ggml.token_type_count", 2)
    for key, value in (("bos", 2), ("eos", 3), ("unknown", 1), ("seperator", 3), ("padding", 0), ("cls", 2), ("mask", 4)):
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", value)
    weights = {}

    def add(name, *shape, spread=None, base=0.0):
        data = (base + random.normal(0, spread or 1 / np.sqrt(shape[-1]), shape)).astype(np.float32)
        weights[name] = data.astype(np.float64)
        writer.add_tensor(name, data)

    def norm(name):
        add(name + ".weight", WIDTH, spread=0.2, base=1.0)
        add(name + ".bias", WIDTH, spread=0.2)

    def linear(name, rows, cols):
        add(name + ".weight", rows, cols)
        add(name + ".bias", rows, spread=0.1)
    add("token_embd.weight", len(tokens), WIDTH, spread=1.0)
    add("token_types.weight", 2, WIDTH, spread=0.5)
    add("position_embd.weight", CONTEXT, WIDTH, spread=0.5)
    norm("token_embd_norm")
    for i in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            linear(f"blk.{i}.{name}", WIDTH, WIDTH)
        norm(f"blk.{i}.attn_output_norm")
        linear(f"blk.{i}.ffn_up", FFN, WIDTH)
        linear(f"blk.{i}.ffn_down", WIDTH, FFN)
        norm(f"blk.{i}.layer_output_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def encode(weights, ids):
    """Hidden states [tokens, WIDTH] of the encoder, as Devlin et al. 2018 define it, in float64."""
    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-12) * weights[name + ".weight"] + weights[name + ".bias"]

    def linear(x, name):
        return x @ weights[name + ".weight"].T + weights[name + ".bias"]

    def heads(x):
        return x.reshape(len(x), HEADS, -1).transpose(1, 0, 2)
    x = weights["token_embd.weight"][ids] + weights["token_types.weight"][0] + weights["position_embd.weight"][:len(ids)]
    x = norm(x, "token_embd_norm")
    for i in range(LAYERS):
        q, k, v = (heads(linear(x, f"blk.{i}.attn_{n}")) for n in "qkv")
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(WIDTH / HEADS)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        y = (scores / scores.sum(-1, keepdims=True)) @ v
        y = linear(y.transpose(1, 0, 2).reshape(len(ids), WIDTH), f"blk.{i}.attn_output")
        x = norm(x + y, f"blk.{i}.attn_output_norm")
        up = linear(x, f"blk.{i}.ffn_up")
        up = 0.5 * up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up ** 3)))
        x = norm(x + linear(up, f"blk.{i}.ffn_down"), f"blk.{i}.layer_output_norm")
    return x


@unittest.skipIf(MISSING, MISSING)
class Embed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.bert = os.path.join(cls.folder.name, "bert.gguf")
        cls.weights = write_bert(cls.bert)
        cls.llama = os.path.join(cls.folder.name, "llama.gguf")
        write_tiny_model(cls.llama)
        cls.lines = os.path.join(cls.folder.name, "texts.txt")
        with open(cls.lines, "w") as handle:
            handle.write("\n".join(TEXTS) + "\n")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_ridge(self, *args):
        return subprocess.run([RIDGE, *args], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)

    def document(self, *args):
        ran = self.run_ridge(*args, "--json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return json.loads(ran.stdout)

    def vectors(self, model, *more):
        return np.array([e["embedding"] for e in self.document("embed", "-m", model, "-f", self.lines, "--lines", *more)["embeddings"]])

    def ids(self, model, text):
        return self.document("tokenize", "-m", model, "-p", text)["ids"]

    def test_encoder_equals_numpy(self):
        for pooling, pick in (("mean", lambda h: h.mean(0)), ("cls", lambda h: h[0]), ("last", lambda h: h[-1])):
            got = self.vectors(self.bert, "--pooling", pooling, "--no-normalize")
            for text, vector in zip(TEXTS, got):
                ids = self.ids(self.bert, text)
                self.assertEqual((ids[0], ids[-1]), (2, 3), "[CLS] and [SEP]")
                wanted = pick(encode(self.weights, ids))
                self.assertLess(np.abs(vector - wanted).max(), 2e-2 * np.abs(wanted).max(), f"{pooling}: {text}")  # KV is f16

    def test_default_is_what_the_file_says(self):
        document = self.document("embed", "-m", self.bert, "-p", TEXTS[0])
        self.assertEqual((document["pooling"], document["width"]), ("mean", WIDTH))
        self.assertAlmostEqual(float(np.linalg.norm(document["embeddings"][0]["embedding"])), 1.0, places=5)
        self.assertEqual(document["embeddings"][0]["tokens"], len(self.ids(self.bert, TEXTS[0])))
        self.assertEqual(self.document("embed", "-m", self.llama, "-p", "the quick")["pooling"], "last")

    def test_same_bits_alone_and_together(self):
        for model in (self.bert, self.llama):
            for pooling in ("mean", "last"):
                together = self.vectors(model, "--pooling", pooling)
                for more in ([], ["-t", "1", "--isa", "scalar"], ["--fusion", "off", "-t", "2"]):
                    for text, vector in zip(TEXTS, together):
                        alone = self.document("embed", "-m", model, "-p", text, "--pooling", pooling, *more)["embeddings"][0]["embedding"]
                        self.assertEqual(alone, vector.tolist(), (text, more))

    def test_decoder_in_chunks(self):
        long = "the quick " * 20
        whole = self.document("embed", "-m", self.llama, "-p", long, "--pooling", "mean")["embeddings"]
        self.assertEqual(self.document("embed", "-m", self.llama, "-p", long, "--pooling", "mean", "-ub", "7")["embeddings"], whole)

    def test_memory_is_for_the_texts_and_not_for_the_context(self):
        path = os.path.join(self.folder.name, "long.gguf")
        write_tiny_model(path, context=1 << 24)
        small = self.document("embed", "-m", path, "-p", "the quick", "--pooling", "mean")
        self.assertLess(small["config"]["n_ctx"], 40)
        self.assertEqual(small["config"]["n_ctx_reason"], "no text is longer")
        long = self.document("embed", "-m", path, "-p", "\U0001f642" * 700, "--pooling", "mean")  # as many tokens as bytes
        self.assertEqual(long["embeddings"][0]["tokens"], 2800)
        self.assertLess(long["config"]["kv_pages"], 100)
        given = self.document("embed", "-m", path, "-p", "the quick", "--pooling", "mean", "-c", "1000")
        self.assertEqual((given["config"]["n_ctx"], given["embeddings"]), (1000, small["embeddings"]))

    def test_refusals(self):
        too_long = " ".join(["the"] * 60)
        for args, words in (
                (["embed", "-m", self.bert, "-p", too_long], ["input[0]", "62 tokens", "48 tokens"]),
                (["embed", "-m", self.bert, "-p", TEXTS[2], "-ub", "8"], ["input[0]", "8 tokens"]),
                (["embed", "-m", self.bert, "-p", "a", "--pooling", "max"], ["--pooling", "mean"]),
                (["run", "-m", self.bert, "-p", "a", "-n", "4"], ["embeddings", "ridge embed"])):
            ran = self.run_ridge(*args)
            self.assertNotEqual(ran.returncode, 0, args)
            errors = [line for line in ran.stderr.splitlines() if line.startswith("error: ")]
            self.assertEqual(len(errors), 1, ran.stderr)
            for word in words:
                self.assertIn(word, ran.stderr)
        no_pooling = os.path.join(self.folder.name, "none.gguf")
        write_bert(no_pooling, pooling=0)
        self.assertIn("bert.pooling_type", self.run_ridge("embed", "-m", no_pooling, "-p", "a").stderr)
        self.assertEqual(self.run_ridge("embed", "-m", no_pooling, "-p", "a", "--pooling", "cls").returncode, 0)


if __name__ == "__main__":
    unittest.main()
