#include "text/pre_tokenizers.h"

namespace ridge::text {
namespace {

// The patterns are facts of the models: as their tokenizer.json files give them where llama.cpp's src/llama-vocab.cpp
// quotes the original, else as llama.cpp spells them. The names are those of tokenizer.ggml.pre, from the same file.
#define RIDGE_RE(name, text) constexpr std::string_view name = text

// Parts that most patterns share. Contractions compare by Unicode case folding, as in the originals.
#define RIDGE_CONTRACTIONS R"re((?i:'s|'t|'re|'ve|'m|'ll|'d))re"
#define RIDGE_TAIL R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re"
#define RIDGE_UPPER R"re([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])re"
#define RIDGE_LOWER R"re([\p{Ll}\p{Lm}\p{Lo}\p{M}])re"
#define RIDGE_CASED(upper, lower, end) \
  R"re([^\r\n\p{L}\p{N}]?)re" upper "*" lower "+" end R"re(|[^\r\n\p{L}\p{N}]?)re" upper "+" lower "*" end

// openai/gpt-2, encoder.py
RIDGE_RE(kGpt2, R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re");
RIDGE_RE(kLlama3,
         RIDGE_CONTRACTIONS R"re(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)re" RIDGE_TAIL);
RIDGE_RE(
    kJais2, RIDGE_CONTRACTIONS
    R"re(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)re"
    R"re(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})re");
RIDGE_RE(kQwen2, RIDGE_CONTRACTIONS R"re(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)re" RIDGE_TAIL);
RIDGE_RE(kQwen35,
         RIDGE_CONTRACTIONS R"re(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)re" RIDGE_TAIL);
RIDGE_RE(kUfakzeka,
         R"re([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)re" RIDGE_TAIL);  // Qwen 2 without contractions
RIDGE_RE(kMinicpm5, RIDGE_CONTRACTIONS R"re(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*)re" RIDGE_TAIL);
RIDGE_RE(kSeedCoder, RIDGE_CONTRACTIONS R"re(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)re" RIDGE_TAIL);
RIDGE_RE(
    kExaoneMoe, RIDGE_CONTRACTIONS
    R"re(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)++|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)re");
RIDGE_RE(
    kBailing,
    R"re('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)re");
RIDGE_RE(kTekken, RIDGE_CASED(RIDGE_UPPER, RIDGE_LOWER, "") R"re(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)re" RIDGE_TAIL);
RIDGE_RE(kGpt4o, RIDGE_CASED(RIDGE_UPPER, RIDGE_LOWER,
                             RIDGE_CONTRACTIONS "?") R"re(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)re" RIDGE_TAIL);
RIDGE_RE(kYoutuCased, RIDGE_CASED(RIDGE_UPPER, RIDGE_LOWER,
                                  RIDGE_CONTRACTIONS "?") R"re(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)re" RIDGE_TAIL);
// Kimi K2: as GPT-4o without Han in words. "Upper, not Han" is written as "none of the other categories, and not Han":
// one class, no look-ahead.
#define RIDGE_UPPER_NOT_HAN R"re([^\p{Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}])re"
#define RIDGE_LOWER_NOT_HAN R"re([^\p{Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}])re"
RIDGE_RE(kKimi, R"re(\p{Han}+|)re" RIDGE_CASED(RIDGE_UPPER_NOT_HAN, RIDGE_LOWER_NOT_HAN,
                                               RIDGE_CONTRACTIONS
                                               "?") R"re(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)re" RIDGE_TAIL);
RIDGE_RE(kNumber, R"re(\p{N})re");
RIDGE_RE(kNumbers, R"re(\p{N}+)re");
RIDGE_RE(kUpToThreeNumbers, R"re(\p{N}{1,3})re");
RIDGE_RE(kThreeAsciiDigits, R"re([0-9][0-9][0-9])re");
RIDGE_RE(kLineBreak, R"re([\r\n])re");
RIDGE_RE(kNewlineRuns, R"re([^\n]+|[\n]+)re");
RIDGE_RE(kPunctuation, R"re([\p{P}\$\+<=>\^~\|]+)re");
RIDGE_RE(kPunctuationFalcon, R"re([\p{P}\$\+<=>\^~\|`]+)re");
RIDGE_RE(kPoro, R"re( ?[^(\s|.,!?…。，、।۔،)]+)re");
RIDGE_RE(kNotSpace, R"re(\S+)re");
RIDGE_RE(kDeepseekLetters,
         R"re(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-)re"
         R"re(ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ)re"
         R"re(-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)re");
RIDGE_RE(kDeepseekPunctuation, R"re(\s?[!-/:-~！-／：-～‘-‟　-。]+)re");
RIDGE_RE(kDeepseekCjk, R"re([一-龥ࠀ-一가-퟿]+)re");
RIDGE_RE(kDeepseekCoderLetters, R"re(\s?\p{L}+)re");
RIDGE_RE(kDeepseekCoderPunctuation, R"re(\s?\p{P}+)re");
RIDGE_RE(kDeepseek3Cjk, R"re([一-龥぀-ゟ゠-ヿ]+)re");
RIDGE_RE(
    kDeepseek3,
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)re" RIDGE_TAIL);
RIDGE_RE(
    kSpark,
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)re");
RIDGE_RE(
    kYoutuScripts,
    R"re([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+)re");
RIDGE_RE(
    kAfmoeScripts,
    R"re([一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+)re");
RIDGE_RE(kChameleonSentinel, R"re(<sentinel:[0-9]+>)re");
RIDGE_RE(kChameleonImage, R"re((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)re");
RIDGE_RE(kChameleonSpace, R"re(([\t\n]|    |  ))re");
RIDGE_RE(kChameleonPunctuation, R"re([\p{P}!-/:-@\[-`{-~])re");

constexpr Split Re(std::string_view pattern) { return {SplitKind::kRegex, pattern}; }

constexpr Split kGpt2Splits[] = {Re(kGpt2)};
constexpr Split kLlama3Splits[] = {Re(kLlama3)};
constexpr Split kJais2Splits[] = {Re(kJais2)};
constexpr Split kQwen2Splits[] = {Re(kQwen2)};
constexpr Split kQwen35Splits[] = {Re(kQwen35)};
constexpr Split kUfakzekaSplits[] = {Re(kUfakzeka)};
constexpr Split kMinicpm5Splits[] = {Re(kUpToThreeNumbers), Re(kMinicpm5)};
constexpr Split kSeedCoderSplits[] = {Re(kSeedCoder)};
constexpr Split kExaoneMoeSplits[] = {Re(kExaoneMoe)};
constexpr Split kBailingSplits[] = {Re(kBailing)};
constexpr Split kTekkenSplits[] = {Re(kTekken)};
constexpr Split kGpt4oSplits[] = {Re(kGpt4o)};
constexpr Split kKimiSplits[] = {Re(kKimi)};
constexpr Split kStarcoderSplits[] = {Re(kNumber), Re(kGpt2)};
constexpr Split kFalconSplits[] = {Re(kPunctuationFalcon), Re(kGpt2), Re(kThreeAsciiDigits)};
constexpr Split kDefaultSplits[] = {Re(kPunctuation), Re(kGpt2), Re(kNumbers), Re(kThreeAsciiDigits)};
constexpr Split kPoroSplits[] = {Re(kPoro)};
constexpr Split kVikingSplits[] = {Re(kPoro), Re(kNumber)};
constexpr Split kDeepseekLlmSplits[] = {Re(kLineBreak),           Re(kDeepseekLetters),
                                        Re(kDeepseekPunctuation), {SplitKind::kTrailingSpace, {}},
                                        Re(kDeepseekCjk),         Re(kNumbers)};
constexpr Split kDeepseekCoderSplits[] = {Re(kLineBreak), Re(kDeepseekCoderLetters), Re(kDeepseekCoderPunctuation),
                                          Re(kDeepseekCjk), Re(kNumber)};
constexpr Split kDeepseek3Splits[] = {Re(kUpToThreeNumbers), Re(kDeepseek3Cjk), Re(kDeepseek3)};
constexpr Split kSparkSplits[] = {Re(kUpToThreeNumbers), Re(kDeepseek3Cjk), Re(kSpark), Re(kNumber)};
constexpr Split kYoutuSplits[] = {Re(kYoutuScripts), Re(kYoutuCased)};
constexpr Split kTinyAyaSplits[] = {{SplitKind::kDigitsByThreeWord, {}}, Re(kGpt4o)};
constexpr Split kSuperbpeSplits[] = {Re(kNumbers), {SplitKind::kDigitsByThreeBefore, {}}};
constexpr Split kAfmoeSplits[] = {{SplitKind::kNumbersByThree, {}}, Re(kAfmoeScripts), Re(kDeepseek3)};
constexpr Split kLagunaSplits[] = {Re(kNewlineRuns), Re(kQwen2)};
constexpr Split kGemma4Splits[] = {Re(kNewlineRuns)};
constexpr Split kWhitespaceSplits[] = {Re(kNotSpace)};
constexpr Split kChameleonSplits[] = {Re(kChameleonSentinel),    Re(kChameleonImage),
                                      Re(kChameleonSpace),       Re(kNumber),
                                      Re(kChameleonPunctuation), Re(kGpt2)};

constexpr PreTokenizer kTable[] = {
    {.name = "default", .splits = kDefaultSplits},
    {.name = "minicpm5", .splits = kMinicpm5Splits, .ignore_merges = true},
    {.name = "llama3", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "llama-bpe", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "falcon3", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "falcon-h1", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "pixtral", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "midm-2.0", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "lfm2", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "jina-v5-nano", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "dbrx", .splits = kLlama3Splits},
    {.name = "smaug-bpe", .splits = kLlama3Splits},
    {.name = "chatglm-bpe", .splits = kLlama3Splits},
    {.name = "glm4", .splits = kLlama3Splits, .ignore_merges = true},
    {.name = "glm5", .splits = kLlama3Splits, .ignore_merges = true},
    {.name = "jais-2", .splits = kJais2Splits},
    {.name = "deepseek-llm", .splits = kDeepseekLlmSplits},
    {.name = "deepseek-coder", .splits = kDeepseekCoderSplits},
    {.name = "deepseek-v3", .splits = kDeepseek3Splits},
    {.name = "hunyuan-dense", .splits = kDeepseek3Splits},
    {.name = "joyai-llm", .splits = kDeepseek3Splits},
    {.name = "hy_v4", .splits = kDeepseek3Splits},
    {.name = "spark2_5", .splits = kSparkSplits},
    {.name = "youtu", .splits = kYoutuSplits, .ignore_merges = true},
    {.name = "falcon", .splits = kFalconSplits},
    {.name = "starcoder", .splits = kStarcoderSplits},
    {.name = "refact", .splits = kStarcoderSplits},
    {.name = "command-r", .splits = kStarcoderSplits},
    {.name = "smollm", .splits = kStarcoderSplits},
    {.name = "codeshell", .splits = kStarcoderSplits},
    {.name = "exaone", .splits = kStarcoderSplits},
    {.name = "minerva-7b", .splits = kStarcoderSplits},
    {.name = "mellum2", .splits = kStarcoderSplits},
    {.name = "gpt-2", .splits = kGpt2Splits},
    {.name = "phi-2", .splits = kGpt2Splits},
    {.name = "jina-es", .splits = kGpt2Splits},
    {.name = "jina-de", .splits = kGpt2Splits},
    {.name = "jina-v1-en", .splits = kGpt2Splits},
    {.name = "jina-v2-es", .splits = kGpt2Splits},
    {.name = "jina-v2-de", .splits = kGpt2Splits},
    {.name = "jina-v2-code", .splits = kGpt2Splits},
    {.name = "roberta-bpe", .splits = kGpt2Splits},
    {.name = "gigachat", .splits = kGpt2Splits},
    {.name = "a.x-4.0", .splits = kGpt2Splits},
    {.name = "mellum", .splits = kGpt2Splits},
    {.name = "modern-bert", .splits = kGpt2Splits},
    {.name = "mpt", .splits = kGpt2Splits},
    {.name = "olmo", .splits = kGpt2Splits},
    {.name = "jais", .splits = kGpt2Splits},
    {.name = "trillion", .splits = kGpt2Splits},
    {.name = "granite-docling", .splits = kGpt2Splits},
    {.name = "exaone4", .splits = kGpt2Splits},
    {.name = "qwen2", .splits = kQwen2Splits},
    {.name = "deepseek-r1-qwen", .splits = kQwen2Splits},
    {.name = "kormo", .splits = kQwen2Splits},
    {.name = "f2llmv2", .splits = kQwen2Splits},
    {.name = "megrez", .splits = kQwen2Splits},
    {.name = "stablelm2", .splits = kQwen2Splits},
    {.name = "hunyuan", .splits = kQwen2Splits},
    {.name = "solar-open", .splits = kQwen2Splits},
    {.name = "grok-2", .splits = kQwen2Splits},
    {.name = "qwen35", .splits = kQwen35Splits},
    {.name = "ufakzeka", .splits = kUfakzekaSplits},
    {.name = "seed-coder", .splits = kSeedCoderSplits},
    {.name = "exaone-moe", .splits = kExaoneMoeSplits},
    {.name = "bailingmoe", .splits = kBailingSplits},
    {.name = "bailingmoe2", .splits = kBailingSplits},
    {.name = "llada-moe", .splits = kBailingSplits},
    {.name = "poro-chat", .splits = kPoroSplits},
    {.name = "bloom", .splits = kPoroSplits},
    {.name = "gpt3-finnish", .splits = kPoroSplits},
    {.name = "viking", .splits = kVikingSplits},
    {.name = "tekken", .splits = kTekkenSplits, .ignore_merges = true, .add_bos = true},
    {.name = "gpt-4o", .splits = kGpt4oSplits},
    {.name = "llama4", .splits = kGpt4oSplits},
    {.name = "kanana2", .splits = kGpt4oSplits},
    {.name = "talkie", .splits = kGpt4oSplits},
    {.name = "minimax-m2", .splits = kGpt4oSplits},
    {.name = "granite-embed-multi-97m", .splits = kGpt4oSplits, .ignore_merges = true},
    {.name = "tiny_aya", .splits = kTinyAyaSplits},
    {.name = "cohere2moe", .splits = kTinyAyaSplits},
    {.name = "kimi-k2", .splits = kKimiSplits},
    {.name = "superbpe", .splits = kSuperbpeSplits},
    {.name = "afmoe", .splits = kAfmoeSplits},
    {.name = "laguna", .splits = kLagunaSplits},
    {.name = "chameleon", .splits = kChameleonSplits, .add_bos = true},
    {.name = "gemma4",
     .splits = kGemma4Splits,
     .byte_level = false,
     .force_add_bos = true,
     .metaspace = true,
     .newline_runs = true},
    {.name = "granite-embed-multi-311m",
     .splits = kGemma4Splits,
     .byte_level = false,
     .force_add_bos = true,
     .metaspace = true,
     .newline_runs = true},
    {.name = "sarvam-moe", .splits = kGemma4Splits, .byte_level = false, .metaspace = true},
    {.name = "whitespace", .splits = kWhitespaceSplits, .byte_level = false, .drop_gaps = true},
};

}  // namespace

std::span<const PreTokenizer> PreTokenizers() { return kTable; }

const PreTokenizer* FindPreTokenizer(std::string_view name) {
  for (const PreTokenizer& pre : kTable) {
    if (pre.name == name) return &pre;
  }
  return nullptr;
}

}  // namespace ridge::text
