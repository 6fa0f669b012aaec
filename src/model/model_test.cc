// Loading: every family from a small file, every key of a wrong type, every tensor missing or misshapen.
#include "model/model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gguf/writer.h"
#include "model/builder.h"

namespace ridge::model {
namespace {

using gguf::Value;

struct Recipe {
  std::string architecture;
  std::map<std::string, Value> keys;  // without the architecture's prefix where they start with a dot
  std::map<std::string, std::vector<uint64_t>> tensors;  // all F32
};

Value Bools(std::vector<uint8_t> items) { return {gguf::ValueType::kArray, gguf::ValueType::kBool, std::move(items)}; }

// A recurrent layer and one of attention, into a recipe that has what all families have.
Recipe Small35(Recipe r) {
  r.keys.at(".rope.dimension_count") = Value::U32(8);
  r.keys.insert({{".ssm.conv_kernel", Value::U32(4)},
                 {".ssm.state_size", Value::U32(16)},
                 {".ssm.group_count", Value::U32(2)},
                 {".ssm.time_step_rank", Value::U32(4)},
                 {".ssm.inner_size", Value::U32(64)},
                 {".full_attention_interval", Value::U32(2)}});
  for (int i = 0; i < 2; i++) {
    const std::string b = "blk." + std::to_string(i) + ".";
    r.tensors.insert({{b + "attn_norm.weight", {64}},
                      {b + "post_attention_norm.weight", {64}},
                      {b + "ffn_gate.weight", {64, 96}},
                      {b + "ffn_up.weight", {64, 96}},
                      {b + "ffn_down.weight", {96, 64}}});
  }
  r.tensors.insert({{"blk.0.attn_qkv.weight", {64, 128}},
                    {"blk.0.attn_gate.weight", {64, 64}},
                    {"blk.0.ssm_alpha.weight", {64, 4}},
                    {"blk.0.ssm_beta.weight", {64, 4}},
                    {"blk.0.ssm_conv1d.weight", {4, 128}},
                    {"blk.0.ssm_dt.bias", {4}},
                    {"blk.0.ssm_a", {4}},
                    {"blk.0.ssm_norm.weight", {16}},
                    {"blk.0.ssm_out.weight", {64, 64}},
                    {"blk.1.attn_q.weight", {64, 128}},
                    {"blk.1.attn_k.weight", {64, 32}},
                    {"blk.1.attn_v.weight", {64, 32}},
                    {"blk.1.attn_q_norm.weight", {16}},
                    {"blk.1.attn_k_norm.weight", {16}},
                    {"blk.1.attn_output.weight", {64, 64}}});
  return r;
}

// An encoder has other norms, no rotation and no output matrix.
Recipe SmallBert(Recipe r) {
  for (const char* key : {".attention.head_count_kv", ".attention.layer_norm_rms_epsilon", ".rope.freq_base",
                          ".rope.dimension_count", ".rope.scaling.type", ".rope.scaling.factor"})
    r.keys.erase(key);
  r.keys.insert({{".attention.layer_norm_epsilon", Value::F32(1e-5f)},
                 {".attention.causal", Value::Bool(false)},
                 {"tokenizer.ggml.token_type_count", Value::U32(2)}});
  r.tensors = {{"token_embd.weight", {64, 50}}, {"token_types.weight", {64, 2}}, {"position_embd.weight", {64, 512}}};
  const auto add = [&](const std::string& name, std::vector<uint64_t> shape) {
    r.tensors.insert({{name + ".weight", shape}, {name + ".bias", {shape.back()}}});
  };
  add("token_embd_norm", {64});
  for (int i = 0; i < 2; i++) {
    const std::string b = "blk." + std::to_string(i) + ".";
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) add(b + name, {64, 64});
    add(b + "ffn_up", {64, 96});
    add(b + "ffn_down", {96, 64});
    for (const char* name : {"attn_output_norm", "layer_output_norm"}) add(b + name, {64});
  }
  return r;
}

// Two layers, 64 wide, 4 heads of 16, 2 KV heads, 50 tokens.
Recipe Small(const std::string& architecture) {
  Recipe r{architecture, {}, {}};
  r.keys = {{".block_count", Value::U32(2)},
            {".context_length", Value::U32(512)},
            {".embedding_length", Value::U32(64)},
            {".feed_forward_length", Value::U32(96)},
            {".attention.head_count", Value::U32(4)},
            {".attention.head_count_kv", Value::U32(2)},
            {".attention.key_length", Value::U32(16)},
            {".attention.value_length", Value::U32(16)},
            {".attention.layer_norm_rms_epsilon", Value::F32(1e-5f)},
            {".rope.freq_base", Value::F32(10000)},
            {".rope.dimension_count", Value::U32(16)},
            {".rope.scaling.type", Value::String("linear")},
            {".rope.scaling.factor", Value::F32(2)}};
  r.tensors = {{"token_embd.weight", {64, 50}}, {"output_norm.weight", {64}}, {"output.weight", {64, 50}}};
  if (architecture == "qwen35") return Small35(std::move(r));
  if (architecture == "bert") return SmallBert(std::move(r));
  const bool norms = architecture == "qwen3" || architecture == "qwen3moe" || architecture == "gemma3";
  for (int i = 0; i < 2; i++) {
    const std::string b = "blk." + std::to_string(i) + ".";
    r.tensors.insert({{b + "attn_norm.weight", {64}},
                      {b + "ffn_norm.weight", {64}},
                      {b + "attn_q.weight", {64, 64}},
                      {b + "attn_k.weight", {64, 32}},
                      {b + "attn_v.weight", {64, 32}},
                      {b + "attn_output.weight", {64, 64}}});
    if (norms) r.tensors.insert({{b + "attn_q_norm.weight", {16}}, {b + "attn_k_norm.weight", {16}}});
    if (architecture == "qwen2")
      r.tensors.insert({{b + "attn_q.bias", {64}}, {b + "attn_k.bias", {32}}, {b + "attn_v.bias", {32}}});
    if (architecture == "gemma3")
      r.tensors.insert({{b + "post_attention_norm.weight", {64}}, {b + "post_ffw_norm.weight", {64}}});
    if (architecture == "qwen3moe") {
      r.tensors.insert({{b + "ffn_gate_inp.weight", {64, 4}},
                        {b + "ffn_gate_exps.weight", {64, 32, 4}},
                        {b + "ffn_up_exps.weight", {64, 32, 4}},
                        {b + "ffn_down_exps.weight", {32, 64, 4}}});
    } else {
      r.tensors.insert(
          {{b + "ffn_gate.weight", {64, 96}}, {b + "ffn_up.weight", {64, 96}}, {b + "ffn_down.weight", {96, 64}}});
    }
  }
  if (architecture == "qwen3moe") {
    r.keys.insert({{".expert_count", Value::U32(4)},
                   {".expert_used_count", Value::U32(2)},
                   {".expert_feed_forward_length", Value::U32(32)}});
  }
  if (architecture == "gemma3") {
    r.keys.insert({{".attention.sliding_window", Value::U32(32)},
                   {".rope.freq_base_swa", Value::F32(10000)},
                   {".attention.sliding_window_pattern", Value::U32(2)},
                   {".final_logit_softcapping", Value::F32(30)}});
  }
  return r;
}

class TestFile {
 public:
  TestFile() : path_(testing::TempDir() + "/ridge_model_test_" + std::to_string(::getpid()) + ".gguf") {}
  ~TestFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<std::unique_ptr<Model>> Load(const Recipe& recipe) {
  static TestFile file;
  gguf::Metadata metadata;
  EXPECT_TRUE(metadata.Add("general.architecture", Value::String(recipe.architecture)));
  for (const auto& [key, value] : recipe.keys)
    EXPECT_TRUE(metadata.Add(key.starts_with('.') ? recipe.architecture + key : key, value));
  std::vector<gguf::TensorSpec> specs;
  uint64_t elements = 0;
  for (const auto& [name, shape] : recipe.tensors) {
    uint64_t n = 1;
    for (uint64_t d : shape) n *= d;
    elements = std::max(elements, n);
    specs.push_back({name, shape, &quant::Get(quant::TypeId::kF32)});
  }
  auto writer = gguf::Writer::Create(file.path(), metadata, specs);
  EXPECT_TRUE(writer) << (writer ? "" : writer.error().Message());
  const std::vector<float> values(elements, 0.01f);
  while (const gguf::TensorSpec* tensor = writer->current()) {
    uint64_t n = 1;
    for (uint64_t d : tensor->shape) n *= d;
    EXPECT_TRUE(writer->Append(std::as_bytes(std::span(values).first(n))));
  }
  EXPECT_TRUE(writer->Commit());
  RIDGE_ASSIGN_OR_RETURN(gguf::File opened, gguf::File::Open(file.path()));
  return Model::Load(std::move(opened));
}

// The error of a load that must fail.
Error Refused(const Recipe& recipe) {
  const auto model = Load(recipe);
  EXPECT_FALSE(model) << "loaded";
  return model ? Error{} : model.error();
}

class FamilyTest : public ::testing::TestWithParam<std::string> {};

TEST_P(FamilyTest, LoadsAndUsesEveryTensor) {
  const auto model = Load(Small(GetParam()));
  ASSERT_TRUE(model) << model.error().Message();
  EXPECT_EQ((*model)->graph().vocab(), (*model)->encoder() ? 64 : 50);
  const size_t recurrent = GetParam() == "qwen35" ? 1 : 0, kv_heads = (*model)->encoder() ? 4 : 2;
  EXPECT_EQ((*model)->graph().state_layers().size(), recurrent);
  EXPECT_EQ((*model)->graph().kv_layers().size(), 2 - recurrent);
  EXPECT_TRUE((*model)->unused().empty());
  EXPECT_EQ((*model)->KvBytesPerToken(2, 2), static_cast<double>((2 - recurrent) * kv_heads * 16 * 4));
  EXPECT_EQ((*model)->StateBytes(), static_cast<int64_t>(recurrent) * 4 * (4 * 16 * 16 + 3 * 128));
}

TEST_P(FamilyTest, EveryMissingOrMisshapenTensorIsNamed) {
  const Recipe good = Small(GetParam());
  for (const auto& [name, shape] : good.tensors) {
    Recipe bad = good;
    bad.tensors.erase(name);
    const bool bias = name.ends_with(".bias") && !name.ends_with("norm.bias") && !name.ends_with("ssm_dt.bias");
    if (name == "output.weight" || name == "token_types.weight" ||
        bias) {  // optional: tied to the token table, or none
      EXPECT_TRUE(Load(bad)) << name;
    } else {
      EXPECT_EQ(Refused(bad).where, name);
    }
    bad = good;
    bad.tensors[name].back() += 32;
    if (name == "token_embd.weight") {
      // The vocabulary follows the token table.
      if (GetParam() != "bert") {
        EXPECT_EQ(Refused(bad).where, "output.weight");
      }
      continue;
    }
    const Error error = Refused(bad);
    EXPECT_EQ(error.where, name);
    EXPECT_FALSE(error.found.empty() || error.expected.empty()) << error.Message();
  }
}

TEST_P(FamilyTest, EveryKeyOfAWrongTypeIsNamed) {
  const Recipe good = Small(GetParam());
  for (const auto& [key, value] : good.keys) {
    for (const Value& wrong :
         {Value::Strings({"a", "b"}), value.type == gguf::ValueType::kString ? Value::U32(7) : Value::String("7")}) {
      Recipe bad = good;
      bad.keys.at(key) = wrong;
      const Error error = Refused(bad);
      EXPECT_NE(error.where.find(key), std::string::npos) << key << ": " << error.Message();
    }
  }
}

TEST_P(FamilyTest, NumbersOutOfRangeAreNamed) {
  const Recipe good = Small(GetParam());
  for (const auto& [key, value] : good.keys) {
    if (value.type != gguf::ValueType::kU32 || key.find("sliding_window") != std::string::npos) continue;
    Recipe bad = good;
    bad.keys.at(key) = Value::U32(key == ".expert_count" ? 4000000000u : 0u);
    if (key == ".expert_feed_forward_length" || key == ".expert_used_count" || key == ".expert_count" ||
        key.starts_with('.')) {
      EXPECT_NE(Refused(bad).where.find(key.substr(1)), std::string::npos) << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamilyTest, ::testing::ValuesIn(Architectures()),
                         [](const auto& info) { return info.param; });

TEST(Model, UnknownArchitectureListsTheKnown) {
  Recipe recipe = Small("llama");
  recipe.architecture = "martian";
  const Error error = Refused(recipe);
  EXPECT_EQ(error.code, Code::kUnsupported);
  EXPECT_EQ(error.found, "martian");
  EXPECT_NE(error.expected.find("qwen3moe"), std::string::npos);
}

TEST(Model, UnneededTensorsAreListed) {
  Recipe recipe = Small("llama");
  recipe.tensors["v.patch_embd.weight"] = {8, 8};
  const auto model = Load(recipe);
  ASSERT_TRUE(model);
  EXPECT_EQ((*model)->unused(), std::vector<std::string>{"v.patch_embd.weight"});
}

TEST(Model, PerLayerArraysAreAcceptedAndChecked) {
  Recipe recipe = Small("llama");
  recipe.keys.at(".attention.head_count_kv") = Value::I32s({2, 4});
  recipe.tensors["blk.1.attn_k.weight"] = recipe.tensors["blk.1.attn_v.weight"] = {64, 64};
  const auto model = Load(recipe);
  ASSERT_TRUE(model) << model.error().Message();
  EXPECT_EQ((*model)->graph().kv_layers()[1].kv_heads, 4);
  recipe.keys.at(".attention.head_count_kv") = Value::I32s({2, 4, 2});
  EXPECT_NE(Refused(recipe).where.find("head_count_kv"), std::string::npos);
  recipe.keys.at(".attention.head_count_kv") = Value::I32s({2, 3});
  EXPECT_NE(Refused(recipe).where.find("head_count_kv"), std::string::npos);
}

TEST(Model, LayersThatPredictFurtherTokensAreLeftAside) {
  Recipe recipe = Small("qwen35");
  recipe.keys.at(".block_count") = Value::U32(3);
  recipe.keys.insert(
      {{".nextn_predict_layers", Value::U32(1)}, {".attention.recurrent_layers", Bools({true, false, false})}});
  recipe.keys.at(".attention.head_count_kv") = Value::I32s({0, 2, 2});
  recipe.tensors["blk.2.attn_q.weight"] = {64, 128};
  recipe.tensors["blk.2.nextn.eh_proj.weight"] = {128, 64};
  const auto model = Load(recipe);
  ASSERT_TRUE(model) << model.error().Message();
  EXPECT_EQ((*model)->config().layers, 2);
  EXPECT_EQ((*model)->unused(), (std::vector<std::string>{"blk.2.attn_q.weight", "blk.2.nextn.eh_proj.weight"}));
  recipe.keys.at(".nextn_predict_layers") = Value::U32(3);
  EXPECT_EQ(Refused(recipe).where, "qwen35.nextn_predict_layers");
}

TEST(Model, ACountOfBlocksThatContradictsTheTensorsIsRefused) {
  for (const std::string& architecture : Architectures()) {
    const bool lists = architecture == "qwen35";  // whose layers differ: fewer of them are another model
    Recipe recipe = Small(architecture);
    recipe.keys.at(".block_count") = Value::U32(1);
    const Error fewer = Refused(recipe);
    if (!lists) EXPECT_EQ(fewer.found, architecture + ".block_count 1") << fewer.Message();
    if (!lists) EXPECT_TRUE(fewer.where.starts_with("blk.1.")) << fewer.Message();
    if (!lists) EXPECT_EQ(fewer.expected, "at least 2");
    recipe.keys.at(".block_count") = Value::U32(3);
    EXPECT_NE(Refused(recipe).Message().find("blk.2."), std::string::npos);
  }
  // A block that is said to predict further tokens, but is one of the model's own.
  Recipe recipe = Small("llama");
  recipe.keys.insert({".nextn_predict_layers", Value::U32(1)});
  const Error error = Refused(recipe);
  EXPECT_TRUE(error.where.starts_with("blk.1.")) << error.Message();
  EXPECT_EQ(error.found, "llama.nextn_predict_layers 1");
  // Such a block may stand behind the count too; names that only look like a block's are no block's.
  recipe = Small("llama");
  recipe.tensors["blk.2.attn_q.weight"] = {64, 64};
  EXPECT_EQ(Refused(recipe).where, "blk.2.attn_q.weight");
  recipe.tensors["blk.2.nextn.eh_proj.weight"] = {128, 64};
  recipe.tensors["blk.99999999999999999999.x"] = recipe.tensors["blk.-1.x"] = recipe.tensors["blk.9"] = {8, 8};
  const auto model = Load(recipe);
  ASSERT_TRUE(model) << model.error().Message();
  EXPECT_EQ((*model)->unused().size(), 5u);
}

TEST(Model, RecurrentLayersAreThoseOfTheList) {
  Recipe recipe = Small("qwen35");
  recipe.keys.erase(".full_attention_interval");
  recipe.keys.insert({{".attention.recurrent_layers", Bools({true, false})}});
  ASSERT_TRUE(Load(recipe));
  recipe.keys.at(".attention.recurrent_layers") = Bools({true, false, true});
  EXPECT_NE(Refused(recipe).where.find("recurrent_layers"), std::string::npos);
  recipe.keys.at(".attention.recurrent_layers") = Bools({false, true});
  EXPECT_NE(Refused(recipe).where.find("blk."), std::string::npos) << "each layer has the other's tensors";
  recipe.keys.at(".attention.recurrent_layers") = Bools({true, false});
  recipe.keys.at(".attention.head_count_kv") = Value::I32s({2, 0});
  EXPECT_EQ(Refused(recipe).where, "qwen35.attention.head_count_kv of layer 1");
  recipe.keys.at(".attention.head_count_kv") = Value::U32(2);
  recipe.keys.at(".ssm.group_count") = Value::U32(3);
  EXPECT_EQ(Refused(recipe).where, "qwen35.ssm.*");
}

// ---------------------------------------------------------------- rotary embeddings

graph::RopeSpec RopeOf(const std::map<std::string, Value>& keys, const std::vector<uint64_t>& factors = {}) {
  Recipe recipe = Small("llama");
  recipe.keys.erase(".rope.scaling.type");
  recipe.keys.erase(".rope.scaling.factor");
  for (const auto& [key, value] : keys) recipe.keys.insert_or_assign(key, value);
  if (!factors.empty()) recipe.tensors["rope_freqs.weight"] = factors;
  const auto model = Load(recipe);
  EXPECT_TRUE(model) << (model ? "" : model.error().Message());
  return model ? (*model)->graph().ropes()[0] : graph::RopeSpec{};
}

TEST(Rope, PlainAndLinear) {
  const graph::RopeSpec plain = RopeOf({}), linear = RopeOf({{".rope.scaling.type", Value::String("linear")},
                                                             {".rope.scaling.factor", Value::F32(4)}});
  const graph::RopeSpec old_key = RopeOf({{".rope.scale_linear", Value::F32(4)}}),
                        none = RopeOf(
                            {{".rope.scaling.type", Value::String("none")}, {".rope.scaling.factor", Value::F32(4)}});
  for (size_t i = 0; i < 8; i++) {
    const double want = std::pow(10000.0, -2.0 * static_cast<double>(i) / 16);
    EXPECT_NEAR(plain.inv_freq[i], want, 1e-14 * want);
    EXPECT_DOUBLE_EQ(linear.inv_freq[i], plain.inv_freq[i] / 4);
    EXPECT_DOUBLE_EQ(old_key.inv_freq[i], plain.inv_freq[i] / 4);
    EXPECT_DOUBLE_EQ(none.inv_freq[i], plain.inv_freq[i]);
  }
  EXPECT_EQ(plain.magnitude, 1);
  EXPECT_TRUE(plain.interleaved);
}

// Values of transformers' _compute_yarn_parameters for dim 16, base 10000, factor 4, original length 128, beta 32 and 1.
TEST(Rope, YarnAsTheReferenceComputesIt) {
  const graph::RopeSpec yarn = RopeOf({{".rope.scaling.type", Value::String("yarn")},
                                       {".rope.scaling.factor", Value::F32(4)},
                                       {".rope.scaling.original_context_length", Value::U32(128)}});
  const auto correction = [](double turns) {
    return 16 * std::log(128 / (turns * 2 * M_PI)) / (2 * std::log(10000.0));
  };
  const double low = std::max(std::floor(correction(32)), 0.0), high = std::min(std::ceil(correction(1)), 15.0);
  EXPECT_EQ(low, 0);
  EXPECT_EQ(high, 3);
  for (size_t i = 0; i < 8; i++) {
    const double plain = std::pow(10000.0, -static_cast<double>(i) / 8),
                 ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double want = plain / 4 * ramp + plain * (1 - ramp);
    EXPECT_NEAR(yarn.inv_freq[i], want, 1e-12 * want) << i;
  }
  EXPECT_NEAR(yarn.magnitude, 0.1 * std::log(4.0) + 1, 1e-12);
  const graph::RopeSpec scaled = RopeOf({{".rope.scaling.type", Value::String("yarn")},
                                         {".rope.scaling.factor", Value::F32(4)},
                                         {".rope.scaling.original_context_length", Value::U32(128)},
                                         {".rope.scaling.yarn_log_multiplier", Value::F32(1)},
                                         {".rope.scaling.attn_factor", Value::F32(0.5)}});
  EXPECT_NEAR(scaled.magnitude, 0.5, 1e-12);
}

TEST(Rope, FrequencyFactorsDivide) {
  const graph::RopeSpec spec = RopeOf({}, {8});  // the test file's tensors hold 0.01
  EXPECT_NEAR(spec.inv_freq[0], 100, 1e-4);
}

TEST(Rope, NumbersThatMakeNoSenseAreNamed) {
  for (const char* key :
       {".rope.scaling.attn_factor", ".rope.scaling.yarn_log_multiplier", ".rope.scaling.yarn_ext_factor",
        ".rope.scaling.yarn_beta_fast", ".rope.scaling.yarn_beta_slow", ".rope.scaling.factor", ".rope.freq_base"}) {
    for (const float value : {std::nanf(""), -1.0f, HUGE_VALF}) {
      Recipe recipe = Small("llama");
      recipe.keys.insert_or_assign(".rope.scaling.type", Value::String("yarn"));
      recipe.keys.insert_or_assign(key, Value::F32(value));
      EXPECT_NE(Refused(recipe).where.find(key), std::string::npos) << key << " " << value;
    }
  }
}

TEST(Rope, UnknownScalingIsRefused) {
  Recipe recipe = Small("qwen2");
  recipe.keys.at(".rope.scaling.type") = Value::String("spiral");
  const Error error = Refused(recipe);
  EXPECT_EQ(error.where, "qwen2.rope.scaling.type");
  EXPECT_EQ(error.found, "spiral");
}

}  // namespace
}  // namespace ridge::model
