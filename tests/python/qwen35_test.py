"""The family qwen35 from file to text, on small random models: against a forward pass in double precision and against mlx-lm, and every way of
computing that must not change a bit.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/qwen35_test.py

mlx-lm's own model file is asked too where mlx and mlx-lm are installed (pip install "mlx[cpu]" mlx-lm).
"""
import json
import os
import subprocess
import tempfile
import unittest

try:
    import numpy as np
    import qwen35_model
    from qwen35_model import EPS, ROPE_BASE, SMALL, TAPS, TINY, write_qwen35
    MISSING = ""
except ImportError as error:
    MISSING = f"writes models with numpy and gguf: {error}"
try:
    import mlx.core as mlx
    from mlx_lm.models import qwen3_5
    NO_MLX = ""
except ImportError as error:
    NO_MLX = f"needs mlx and mlx-lm: {error}"

RIDGE = os.environ.get("RIDGE_BIN", "build/release/bin/ridge")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def exact_logits(w, ids, size, layers, interval):
    """[tokens, vocab] by the definition, in double precision."""
    w = {name: value.astype(np.float64) for name, value in w.items()}
    s, n = size, len(ids)

    def norm(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight

    def unit(x):
        return x / np.sqrt((x * x).sum(-1, keepdims=True) + EPS)

    def turn(x, rotary):  # [tokens, heads, dim]
        half = rotary // 2
        angle = np.arange(n)[:, None] * ROPE_BASE ** (-np.arange(half) / half)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., :half], x[..., half:rotary]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos, x[..., rotary:]], -1)

    def attention(p, x):
        dim, heads, kv_heads = s["head_dim"], s["heads"], s["kv_heads"]
        q, gate = np.split((x @ w[p + "attn_q.weight"].T).reshape(n, heads, 2 * dim), 2, -1)
        k = (x @ w[p + "attn_k.weight"].T).reshape(n, kv_heads, dim)
        v = (x @ w[p + "attn_v.weight"].T).reshape(n, kv_heads, dim)
        q, k = turn(norm(q, w[p + "attn_q_norm.weight"]), dim // 4), turn(norm(k, w[p + "attn_k_norm.weight"]), dim // 4)
        k, v = np.repeat(k, heads // kv_heads, 1), np.repeat(v, heads // kv_heads, 1)
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(dim) + np.triu(np.full((n, n), -np.inf), 1)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        y = np.einsum("hts,shd->thd", scores / scores.sum(-1, keepdims=True), v) * sigmoid(gate)
        return y.reshape(n, -1) @ w[p + "attn_output.weight"].T

    def delta(p, x):
        heads, key_heads, kd, vd = s["state_heads"], s["key_heads"], s["key_dim"], s["value_dim"]
        mixed = np.concatenate([np.zeros((TAPS - 1, 2 * key_heads * kd + heads * vd)), x @ w[p + "attn_qkv.weight"].T])
        mixed = sum(mixed[j:j + n] * w[p + "ssm_conv1d.weight"][:, j] for j in range(TAPS))
        mixed = mixed * sigmoid(mixed)
        q, k, v = np.split(mixed, [key_heads * kd, 2 * key_heads * kd], -1)
        q, k = (np.tile(unit(t.reshape(n, key_heads, kd)), (1, heads // key_heads, 1)) for t in (q, k))  # head h: key head h mod key_heads
        q, v = q / np.sqrt(kd), v.reshape(n, heads, vd)
        decay = np.exp(w[p + "ssm_a"] * np.log1p(np.exp(x @ w[p + "ssm_alpha.weight"].T + w[p + "ssm_dt.bias"])))
        beta = sigmoid(x @ w[p + "ssm_beta.weight"].T)
        state, out = np.zeros((heads, kd, vd)), np.zeros((n, heads, vd))
        for t in range(n):
            state *= decay[t][:, None, None]
            error = beta[t][:, None] * (v[t] - np.einsum("hk,hkv->hv", k[t], state))
            state += k[t][:, :, None] * error[:, None, :]
            out[t] = np.einsum("hk,hkv->hv", q[t], state)
        z = x @ w[p + "attn_gate.weight"].T
        return ((z * sigmoid(z)) * norm(out, w[p + "ssm_norm.weight"]).reshape(n, -1)) @ w[p + "ssm_out.weight"].T

    x = w["token_embd.weight"][ids]
    for i in range(layers):
        p = f"blk.{i}."
        x = x + (attention if (i + 1) % interval == 0 else delta)(p, norm(x, w[p + "attn_norm.weight"]))
        y = norm(x, w[p + "post_attention_norm.weight"])
        gate = y @ w[p + "ffn_gate.weight"].T
        x = x + (gate * sigmoid(gate) * (y @ w[p + "ffn_up.weight"].T)) @ w[p + "ffn_down.weight"].T
    return norm(x, w["output_norm.weight"]) @ w["token_embd.weight"].T


def mlx_logits(w, ids, size, layers, interval):
    """The same by mlx-lm, whose value heads stand in groups, one group to a key head."""
    s, per = size, size["state_heads"] // size["key_heads"]
    model = qwen3_5.TextModel(qwen3_5.TextModelArgs.from_dict(dict(
        model_type="qwen3_5_text", hidden_size=s["width"], intermediate_size=s["ffn"], num_hidden_layers=layers, num_attention_heads=s["heads"],
        num_key_value_heads=s["kv_heads"], rms_norm_eps=EPS, vocab_size=w["token_embd.weight"].shape[0], max_position_embeddings=s["context"],
        linear_num_value_heads=s["state_heads"], linear_num_key_heads=s["key_heads"], linear_key_head_dim=s["key_dim"],
        linear_value_head_dim=s["value_dim"], linear_conv_kernel_dim=TAPS, tie_word_embeddings=True, head_dim=s["head_dim"],
        full_attention_interval=interval, rope_parameters=dict(type="default", rope_theta=ROPE_BASE, partial_rotary_factor=0.25))))
    keys = 2 * s["key_heads"] * s["key_dim"]

    def grouped(a, dim, axis=0):
        a = np.moveaxis(a, axis, 0)
        a = a.reshape(per, s["key_heads"], dim, *a.shape[1:]).swapaxes(0, 1).reshape(-1, *a.shape[1:])
        return np.moveaxis(a, 0, axis)

    names = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
    dim = s["value_dim"]
    changed = {"attn_qkv": ("in_proj_qkv.weight", lambda a: np.concatenate([a[:keys], grouped(a[keys:], dim)])),
               "attn_gate": ("in_proj_z.weight", lambda a: grouped(a, dim)), "ssm_alpha": ("in_proj_a.weight", lambda a: grouped(a, 1)),
               "ssm_beta": ("in_proj_b.weight", lambda a: grouped(a, 1)), "ssm_dt": ("dt_bias", lambda a: grouped(a, 1)),
               "ssm_conv1d": ("conv1d.weight", lambda a: np.concatenate([a[:keys], grouped(a[keys:], dim)])[:, :, None]),
               "ssm_a": ("A_log", lambda a: np.log(-grouped(a, 1))), "ssm_norm": ("norm.weight", lambda a: a),
               "ssm_out": ("out_proj.weight", lambda a: grouped(a, dim, 1))}
    weights = [("model.embed_tokens.weight", w["token_embd.weight"]), ("model.norm.weight", w["output_norm.weight"])]
    for name, value in w.items():
        if not name.startswith("blk.") or int(name.split(".")[1]) >= layers:
            continue
        _, layer, base = name.split(".")[:3]
        if base in names:
            weights.append((f"model.layers.{layer}.{names[base]}.weight", value))
        else:
            weights.append((f"model.layers.{layer}.linear_attn.{changed[base][0]}", changed[base][1](value)))
    model.load_weights([(name, mlx.array(np.ascontiguousarray(value))) for name, value in weights])
    return np.array(model(mlx.array([ids]))[0].astype(mlx.float32)).astype(np.float64)


@unittest.skipIf(MISSING, MISSING)
class Qwen35Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.tiny = os.path.join(cls.folder.name, "tiny.gguf")
        write_qwen35(cls.tiny, kind="Q8_0")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def logits(self, path, ids, *options, scores=False):
        out = os.path.join(self.folder.name, "logits.f32")
        ran = subprocess.run([RIDGE, "logits", "-m", path, "--ids", ",".join(map(str, ids)), "-o", out, "--json", *options], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        document = json.loads(ran.stdout)
        self.assertEqual(document["nan_rows"], 0)
        return np.fromfile(out, np.float32).reshape(document["n_tokens"], -1).astype(np.float64) if scores else document["hash"]

    def near(self, found, want):
        self.assertEqual(found.shape, want.shape)
        self.assertLess(np.abs(found - want).max(), 1e-3 * np.abs(want).max())

    def shapes(self):
        yield SMALL, 4, 4, False
        yield dict(TINY, key_heads=1, state_heads=3), 5, 3, True  # the last layer is recurrent; keys of one head for three

    def ids(self, n, vocab):
        return [int(i) for i in np.random.default_rng(4).integers(0, vocab, n)]

    def test_logits_are_those_of_the_definition(self):
        for size, layers, interval, lists in self.shapes():
            path = os.path.join(self.folder.name, "model.gguf")
            weights = write_qwen35(path, size=size, layers=layers, interval=interval, lists=lists)
            ids = self.ids(90, weights["token_embd.weight"].shape[0])
            self.near(self.logits(path, ids, "-ctk", "f32", "-ctv", "f32", scores=True), exact_logits(weights, ids, size, layers, interval))

    @unittest.skipIf(NO_MLX, NO_MLX)
    def test_logits_are_those_of_mlx_lm(self):
        mlx.set_default_device(mlx.cpu)
        for size, layers, interval, lists in self.shapes():
            path = os.path.join(self.folder.name, "model.gguf")
            weights = write_qwen35(path, size=size, layers=layers, interval=interval, lists=lists)
            ids = self.ids(90, weights["token_embd.weight"].shape[0])
            self.near(self.logits(path, ids, "-ctk", "f32", "-ctv", "f32", scores=True), mlx_logits(weights, ids, size, layers, interval))

    def test_no_bit_depends_on_how_it_is_computed(self):
        ids = self.ids(200, 260)
        want = self.logits(self.tiny, ids)
        for options in (["-ub", "1"], ["-ub", "7", "-t", "2"], ["-ub", "16", "-t", "3"], ["--kv-page", "16"], ["--kv-page", "512", "-t", "5"], ["--fusion", "off"]):
            self.assertEqual(self.logits(self.tiny, ids, *options), want, options)
        for isa in json.loads(subprocess.run([RIDGE, "doctor", "--json"], capture_output=True, check=True).stdout)["isa_targets"]:
            if isa["supported"]:
                self.assertEqual(self.logits(self.tiny, ids, "--isa", isa["name"]), want, isa)

    def test_text_goes_on_as_the_logits_say(self):
        command = [RIDGE, "run", "-m", self.tiny, "-p", "the quick", "-n", "24", "--temp", "0"]
        want = subprocess.run(command, capture_output=True)
        self.assertEqual(want.returncode, 0, want.stderr)
        self.assertIn(b"tensors of the file are not used, blk.4.", want.stderr)
        for options in (["-ub", "1"], ["-ub", "3", "-t", "2"], ["--kv-page", "16"]):
            self.assertEqual(subprocess.run(command + options, capture_output=True).stdout, want.stdout, options)

    def test_the_graph_says_what_it_computes(self):
        said = json.loads(subprocess.run([RIDGE, "inspect", self.tiny, "--graph", "--json"], capture_output=True, check=True).stdout)
        kinds = [kind for op in said["ops"] for kind in op["ops"]]
        self.assertEqual((kinds.count("short_conv"), kinds.count("delta_rule"), kinds.count("attention")), (2, 2, 2))

    def test_benchmarks_run(self):
        ran = subprocess.run([RIDGE, "bench", "-m", self.tiny, "-p", "16", "-n", "4", "-d", "0,8", "-r", "1", "--no-warmup"], capture_output=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        ran = subprocess.run([RIDGE, "batched-bench", "-m", self.tiny, "-npp", "8", "-ntg", "4", "-npl", "1,3"], capture_output=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)


if __name__ == "__main__":
    unittest.main()
