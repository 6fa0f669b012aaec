"""Writes a tiny random-weight model, llama unless another family is asked for, that the whole program can run: byte-level vocabulary, two layers, 100 kB.

    write_tiny_model(path, chat_template=CHATML, context=256, seed=1)
    write_tiny_model(path, architecture="gemma3", kind="Q4_1")   # any family of FAMILIES
    write_tiny_model(path, silent=40)   # and 40 layers more that add nothing: the same answers, slower

Its answers mean nothing, but they follow from the prompt alone, and random bytes are good company for a detokenizer.
Needs numpy and the gguf package.
"""
import gguf
import numpy as np

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WIDTH, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS = 64, 4, 2, 16, 128, 2
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_letters():
    """The printable letter that stands for each byte in a byte-level vocabulary (GPT-2's table)."""
    shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters, extra = {b: chr(b) for b in shown}, 0
    for b in range(256):
        if b not in letters:
            letters[b] = chr(256 + extra)
            extra += 1
    return [letters[b] for b in range(256)]


def vocabulary():
    letters = byte_letters()
    merges = [("t", "h"), ("th", "e"), (letters[32], "the"), ("q", "u"), ("c", "k")]
    tokens = SPECIALS + letters + [a + b for a, b in merges]
    types = [gguf.TokenType.CONTROL] * len(SPECIALS) + [gguf.TokenType.NORMAL] * (len(tokens) - len(SPECIALS))
    return tokens, types, [f"{a} {b}" for a, b in merges]


FAMILIES = ["llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "qwen35"]
EXPERTS, EXPERTS_USED, EXPERT_FFN = 6, 2, 96


def write_tiny_model(path, chat_template=None, context=256, seed=1, add_bos=False, architecture="llama", kind="F32", silent=0):
    if architecture == "qwen35":
        from qwen35_model import TINY, write_qwen35

        write_qwen35(path, kind=kind, size=dict(TINY, context=context), seed=seed, chat_template=chat_template, pre="gpt-2", add_bos=add_bos)
        return
    random = np.random.default_rng(seed)
    tokens, types, merges = vocabulary()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS + silent)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(add_bos)
    if chat_template is not None:
        writer.add_chat_template(chat_template)

    if architecture == "qwen3moe":
        writer.add_expert_count(EXPERTS)
        writer.add_expert_used_count(EXPERTS_USED)
        writer.add_expert_feed_forward_length(EXPERT_FFN)
    if architecture == "gemma3":
        writer.add_sliding_window(24)

    def matrix(name, *shape):
        values = (random.standard_normal(shape[:-1]) * shape[-1]).astype(np.float32)
        if name.startswith("blk.") and int(name.split(".")[1]) >= LAYERS and name.endswith(("attn_output.weight", "ffn_down.weight")):
            values[:] = 0
        if kind == "F32":
            writer.add_tensor(name, values)
        else:
            as_type = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quants.quantize(values, as_type), raw_dtype=as_type)

    def vector(name, n, around=1.0):
        if architecture == "llama":
            writer.add_tensor(name, np.ones(n, np.float32))
        else:
            writer.add_tensor(name, (around + 0.2 * random.standard_normal(n)).astype(np.float32))

    matrix("token_embd.weight", len(tokens), WIDTH, 1.0)
    matrix("output.weight", len(tokens), WIDTH, 1.0)
    vector("output_norm.weight", WIDTH)
    for i in range(LAYERS + silent):
        block = f"blk.{i}."
        vector(block + "attn_norm.weight", WIDTH)
        vector(block + "ffn_norm.weight", WIDTH)
        matrix(block + "attn_q.weight", HEADS * HEAD_DIM, WIDTH, 0.3)
        matrix(block + "attn_k.weight", KV_HEADS * HEAD_DIM, WIDTH, 0.3)
        matrix(block + "attn_v.weight", KV_HEADS * HEAD_DIM, WIDTH, 0.3)
        matrix(block + "attn_output.weight", WIDTH, HEADS * HEAD_DIM, 0.3)
        if architecture == "qwen2":
            vector(block + "attn_q.bias", HEADS * HEAD_DIM, 0.0)
            vector(block + "attn_k.bias", KV_HEADS * HEAD_DIM, 0.0)
            vector(block + "attn_v.bias", KV_HEADS * HEAD_DIM, 0.0)
        if architecture in ("qwen3", "qwen3moe", "gemma3"):
            vector(block + "attn_q_norm.weight", HEAD_DIM)
            vector(block + "attn_k_norm.weight", HEAD_DIM)
        if architecture == "gemma3":
            vector(block + "post_attention_norm.weight", WIDTH)
            vector(block + "post_ffw_norm.weight", WIDTH)
        if architecture == "qwen3moe":
            matrix(block + "ffn_gate_inp.weight", EXPERTS, WIDTH, 0.3)
            matrix(block + "ffn_gate_exps.weight", EXPERTS, EXPERT_FFN, WIDTH, 0.3)
            matrix(block + "ffn_up_exps.weight", EXPERTS, EXPERT_FFN, WIDTH, 0.3)
            matrix(block + "ffn_down_exps.weight", EXPERTS, WIDTH, EXPERT_FFN, 0.3)
            continue
        matrix(block + "ffn_gate.weight", FFN, WIDTH, 0.3)
        matrix(block + "ffn_up.weight", FFN, WIDTH, 0.3)
        matrix(block + "ffn_down.weight", WIDTH, FFN, 0.3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
