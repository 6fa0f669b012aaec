#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "base/quantity.h"

namespace ridge::server {
namespace {

constexpr size_t kMaxStops = 16, kMaxStopBytes = 1024;
constexpr size_t kMaxNameBytes = 1024;  // kept as long as the request runs, and in the tree of prefixes
constexpr int64_t kMaxPriority = 100;
constexpr double kMostDeadline_s = 86400;

void ReadStop(Fields& fields, std::vector<std::string>& stop) {
  const Json* value = fields.Any("stop");
  if (value == nullptr) return;
  const Json one = value->is_string() ? Json::array({*value}) : Json();
  const Json& list = value->is_string() ? one : *value;
  const std::string expected =
      fmt::format("a string or a list of at most {}, each of 1 to {}", kMaxStops, ridge::Count(kMaxStopBytes, "byte"));
  if (!list.is_array() || list.size() > kMaxStops) return fields.Refuse("stop", Shown(*value), expected);
  for (const Json& item : list) {
    if (!item.is_string()) return fields.Refuse("stop", Shown(item), expected);
    const std::string& text = item.get_ref<const std::string&>();
    if (text.empty() || text.size() > kMaxStopBytes) return fields.Refuse("stop", Shown(item), expected);
    stop.push_back(text);
  }
}

void ReadLogitBias(Fields& fields, int64_t vocab, std::vector<sampling::LogitBias>& biases) {
  const Json* value = fields.Any("logit_bias");
  if (value == nullptr) return;
  const std::string expected = fmt::format("an object of token ids, 0 to {}, and numbers, -100 to 100", vocab - 1);
  if (!value->is_object()) return fields.Refuse("logit_bias", Shown(*value), expected);
  for (const auto& [key, bias] : value->items()) {
    int64_t id = -1;
    const std::errc error = std::from_chars(key.data(), key.data() + key.size(), id).ec;
    // One spelling for each token ("28", not "028"), so that none can be named twice.
    if (error != std::errc() || id < 0 || id >= vocab || key != std::to_string(id))
      return fields.Refuse("logit_bias", "token " + Shown(Json(key)), expected);
    const double number = bias.is_number() ? bias.get<double>() : 1000;
    if (number < -100 || number > 100) return fields.Refuse("logit_bias", Shown(bias), expected);
    // By OpenAI's rule -100 bans a token.
    biases.push_back({static_cast<TokenId>(id), number <= -100 ? -std::numeric_limits<double>::infinity() : number});
  }
  if (static_cast<int64_t>(biases.size()) == vocab &&
      std::ranges::all_of(biases, [](const sampling::LogitBias& b) { return std::isinf(b.bias); }))
    fields.Refuse("logit_bias", fmt::format("all {} banned", ridge::Count(vocab, "token")),
                  "a token that may be sampled");
}

void ReadName(Fields& fields, std::string_view name, std::string& target) {
  std::string text;
  fields.Text(name, text);
  if (text.size() > kMaxNameBytes)
    return fields.Refuse(name, ridge::Count(text.size(), "byte"),
                         fmt::format("at most {}", ridge::Count(kMaxNameBytes, "byte")));
  target = std::move(text);
}

void ReadStream(Fields& fields, Generation& out) {
  fields.Bool("stream", out.stream);
  const Json* value = fields.Any("stream_options");
  if (value == nullptr) return;
  Fields options(*value, "stream_options");
  options.Bool("include_usage", out.include_usage);
  options.NotYet("include_obfuscation", {"false"});
  if (const Status done = options.Done(); !done) return fields.Refuse(done.error());
  if (!out.stream) fields.Refuse("stream_options", "stream is not true", "stream_options only with stream: true");
}

void Count(Fields& fields, std::string_view name, int32_t& target, int64_t least) {
  int64_t number = target;
  fields.Integer(name, number, least, INT32_MAX);
  target = static_cast<int32_t>(number);
}

void ReadSampling(Fields& fields, int64_t vocab, sampling::SamplingParams& p) {
  p.temperature = 1;
  p.top_p = 1;
  p.top_k = 0;
  p.min_p = 0;
  p.repeat_last_n = -1;
  fields.Number("temperature", p.temperature, 0, 2);
  fields.Number("top_p", p.top_p, 0, 1);
  fields.Number("presence_penalty", p.presence_penalty, -2, 2);
  fields.Number("frequency_penalty", p.frequency_penalty, -2, 2);
  ReadLogitBias(fields, vocab, p.logit_bias);
  // Names of llama.cpp's server.
  Count(fields, "top_k", p.top_k, -1);
  fields.Number("min_p", p.min_p, 0, 1);
  fields.Number("typical_p", p.typical_p, 0, 1);
  fields.Number("top_n_sigma", p.top_n_sigma, -1, 1e6);
  fields.Number("xtc_probability", p.xtc_probability, 0, 1);
  fields.Number("xtc_threshold", p.xtc_threshold, 0, 1);
  Count(fields, "repeat_last_n", p.repeat_last_n, -1);
  fields.Number("repeat_penalty", p.repeat_penalty, 1e-3, 1e3);
  fields.Number("dry_multiplier", p.dry_multiplier, 0, 1e3);
  fields.Number("dry_base", p.dry_base, 1, 1e3);
  Count(fields, "dry_allowed_length", p.dry_allowed_length, 1);
  Count(fields, "dry_penalty_last_n", p.dry_penalty_last_n, -1);
  std::optional<int64_t> seed;
  fields.Integer("seed", seed, INT64_MIN, INT64_MAX);
  if (seed) {
    p.seed = static_cast<uint64_t>(*seed);
  } else {
    std::random_device random;
    p.seed = (uint64_t{random()} << 21) ^ random();  // at most 53 bits: a JSON number that every client keeps
  }
}

}  // namespace

void ReadModel(Fields& fields, const Context& context) {
  std::optional<std::string> name;
  fields.Text("model", name);
  if (!name || *name == context.model_id || std::ranges::find(context.aliases, *name) != context.aliases.end()) return;
  fields.Refuse(Error{.code = Code::kNotFound,
                      .what = "the model is not served here",
                      .where = "model",
                      .found = Shown(Json(*name)),
                      .expected = context.model_id});
}

void ReadGeneration(Fields& fields, const Context& context, Generation& out) {
  const int64_t vocab = context.runtime().model().graph().vocab();
  ReadModel(fields, context);
  ReadStream(fields, out);
  fields.Integer("n", out.n, 1, kMaxChoices);
  ReadStop(fields, out.text.stop);
  ReadSampling(fields, vocab, out.text.sampling);
  ReadName(fields, "cache_salt", out.text.cache_salt);
  fields.Bool("cache_prompt", out.text.use_cache);
  if (fields.Any("deadline_s") != nullptr)
    fields.Number("deadline_s", out.text.deadline_s.emplace(), 0, kMostDeadline_s);
  fields.Number("cache_pin_s", out.text.cache_pin_s, 0, engine::kMostPin_s);
  int64_t priority = 0;
  fields.Integer("priority", priority, -kMaxPriority, kMaxPriority);
  out.text.priority = static_cast<int32_t>(priority);
  fields.Bool("ignore_eos", out.text.ignore_end);
  out.text.speculation = context.speculation;
  out.text.whole_answer = true;
  ReadName(fields, "user", out.text.tenant);  // users share the engine fairly
  fields.NotYet("service_tier", {"\"auto\"", "\"default\""});
  fields.NotYet("store", {"false"});
  fields.NotYet("metadata", {"{}"});
}

}  // namespace ridge::server
