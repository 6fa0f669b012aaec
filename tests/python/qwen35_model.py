"""Writes a random-weight model of the family qwen35 (gated delta rule beside gated attention), and knows its weights by name.

    weights = write_qwen35(path)                          # 1 MB, four layers and one that predicts a further token
    weights = write_qwen35(path, kind="Q8_0", size=SMALL, layers=8, interval=4, key_heads=2)

Rows of the token table are nearly orthogonal, and a layer adds about as much to the residual stream as the token brought: so
rounding does not flip the winner, and all that layers do moves the rest of the distribution. Decays lie between 0.2 and 1, so
that the matrices remember hundreds of tokens. Returns {name: float32 array}, the values before quantization.
Needs numpy and the gguf package. From the command line: qwen35_model.py PATH [--type T] [--size small|0.8b] [--layers N]
"""
import argparse

import gguf
import numpy as np

from tiny_model import vocabulary

TINY = dict(width=64, heads=4, kv_heads=2, head_dim=16, ffn=128, key_heads=2, state_heads=4, key_dim=16, value_dim=16, context=256)
SMALL = dict(width=256, heads=4, kv_heads=2, head_dim=64, ffn=768, key_heads=2, state_heads=4, key_dim=32, value_dim=32, context=4096)
# the shape of Qwen3.5-0.8B
B08 = dict(width=1024, heads=8, kv_heads=2, head_dim=256, ffn=3584, key_heads=16, state_heads=16, key_dim=128, value_dim=128, context=32768)
TAPS, EPS, ROPE_BASE = 4, 1e-6, 1e7


def write_qwen35(path, kind="F32", size=None, layers=4, interval=2, nextn=1, seed=1, vocab=None, chat_template=None, pre="qwen35", lists=False, add_bos=False):
    s = dict(size or TINY)
    random = np.random.default_rng(seed)
    tokens, types, merges = vocabulary()
    for i in range(len(tokens), vocab or 0):
        tokens.append(f"<|f{i}|>")
        types.append(gguf.TokenType.CONTROL)
    width, dim = s["width"], s["head_dim"]
    rotary = dim // 4
    inner = s["state_heads"] * s["value_dim"]
    channels = 2 * s["key_heads"] * s["key_dim"] + inner
    blocks = layers + nextn
    recurrent = [i < layers and (i + 1) % interval != 0 for i in range(blocks)]
    w = gguf.GGUFWriter(path, "qwen35")
    w.add_name("qwen35-random")
    w.add_context_length(s["context"])
    w.add_embedding_length(width)
    w.add_block_count(blocks)
    w.add_feed_forward_length([s["ffn"]] * blocks if lists else s["ffn"])
    w.add_head_count(s["heads"])
    w.add_head_count_kv([0 if r else s["kv_heads"] for r in recurrent] if lists else s["kv_heads"])
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_rope_dimension_count(rotary)
    third = rotary // 2 // 3
    w.add_rope_dimension_sections([rotary // 2 - 2 * third, third, third, 0])
    w.add_rope_freq_base(ROPE_BASE)
    w.add_layer_norm_rms_eps(EPS)
    w.add_vocab_size(len(tokens))
    w.add_ssm_conv_kernel(TAPS)
    w.add_ssm_state_size(s["key_dim"])
    w.add_ssm_group_count(s["key_heads"])
    w.add_ssm_time_step_rank(s["state_heads"])
    w.add_ssm_inner_size(inner)
    if lists:
        w.add_array("qwen35.attention.recurrent_layers", recurrent)  # older gguf packages have no function for it
    else:
        w.add_uint32("qwen35.full_attention_interval", interval)
    if nextn:
        w.add_nextn_predict_layers(nextn)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(0)
    w.add_eos_token_id(2)
    w.add_add_bos_token(add_bos)
    if chat_template is not None:
        w.add_chat_template(chat_template)
    values = {}

    def put(name, array, always=None):
        array = np.ascontiguousarray(array, np.float32)
        values[name] = array
        as_type = gguf.GGMLQuantizationType[always or kind]
        if array.ndim < 2 or as_type == gguf.GGMLQuantizationType.F32 or array.shape[-1] % gguf.GGML_QUANT_SIZES[as_type][0]:
            w.add_tensor(name, array)
        else:
            w.add_tensor(name, gguf.quants.quantize(array, as_type), raw_dtype=as_type)

    def matrix(name, rows, cols, std, always=None):
        put(name, random.standard_normal((rows, cols), dtype=np.float32) * np.float32(std), always)

    def flat(name, n, base=1.0, spread=0.1):
        put(name, base + spread * random.standard_normal(n))

    unit = 1 / np.sqrt(width)
    share = 1.2 * unit  # of what a sublayer adds
    matrix("token_embd.weight", len(tokens), width, unit)
    flat("output_norm.weight", width)

    def attention(p):
        matrix(p + "attn_q.weight", 2 * s["heads"] * dim, width, 2 * unit)
        matrix(p + "attn_k.weight", s["kv_heads"] * dim, width, unit)
        matrix(p + "attn_v.weight", s["kv_heads"] * dim, width, unit)
        matrix(p + "attn_output.weight", width, s["heads"] * dim, 2 * share / np.sqrt(s["heads"] * dim))
        flat(p + "attn_q_norm.weight", dim, 1.5)
        flat(p + "attn_k_norm.weight", dim)

    def delta(p):
        heads = s["state_heads"]
        matrix(p + "attn_qkv.weight", channels, width, unit)
        matrix(p + "attn_gate.weight", inner, width, unit)
        matrix(p + "ssm_alpha.weight", heads, width, unit)
        matrix(p + "ssm_beta.weight", heads, width, unit)
        put(p + "ssm_conv1d.weight", 0.6 * random.standard_normal((channels, TAPS)), "F32")
        rate = np.exp(random.uniform(np.log(1e-3), np.log(0.1), heads))
        put(p + "ssm_dt.bias", np.log(np.expm1(rate)))
        put(p + "ssm_a", -random.uniform(1, 16, heads))
        flat(p + "ssm_norm.weight", s["value_dim"])
        matrix(p + "ssm_out.weight", width, inner, 2 * share / np.sqrt(inner))

    for i in range(blocks):
        p = f"blk.{i}."
        flat(p + "attn_norm.weight", width)
        flat(p + "post_attention_norm.weight", width)
        (delta if recurrent[i] else attention)(p)
        matrix(p + "ffn_gate.weight", s["ffn"], width, unit)
        matrix(p + "ffn_up.weight", s["ffn"], width, unit)
        matrix(p + "ffn_down.weight", width, s["ffn"], 2 * share / np.sqrt(s["ffn"]))
        if i >= layers:
            matrix(p + "nextn.eh_proj.weight", width, 2 * width, unit)
            flat(p + "nextn.enorm.weight", width)
            flat(p + "nextn.hnorm.weight", width)
            flat(p + "nextn.shared_head_norm.weight", width)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return values


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--type", default="F32")
    parser.add_argument("--size", choices=["tiny", "small", "0.8b"], default="small")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--interval", type=int, default=4)
    parser.add_argument("--vocab", type=int)
    o = parser.parse_args()
    write_qwen35(o.path, kind=o.type, size={"tiny": TINY, "small": SMALL, "0.8b": B08}[o.size], layers=o.layers, interval=o.interval, vocab=o.vocab)


if __name__ == "__main__":
    main()
