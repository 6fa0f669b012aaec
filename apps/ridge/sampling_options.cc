#include "sampling_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "sampling/dry.h"

namespace ridge::app {
namespace {

// TOKEN+BIAS or TOKEN-BIAS, as in llama.cpp: 15043+1.5, 2-inf.
Result<sampling::LogitBias> ParseLogitBias(const std::string& text) {
  const auto bad = [&] {
    return Fail(Code::kUsage, "not a logit bias")
        .Where("--logit-bias")
        .Found("\"" + text + "\"")
        .Expected("TOKEN_ID+BIAS or TOKEN_ID-BIAS, for example 15043+1 or 2-inf");
  };
  sampling::LogitBias bias;
  const char* end = text.data() + text.size();
  const auto id = std::from_chars(text.data(), end, bias.id);
  if (id.ec != std::errc() || id.ptr == end || (*id.ptr != '+' && *id.ptr != '-')) return bad();
  const auto value = std::from_chars(id.ptr + 1, end, bias.bias);
  if (value.ec != std::errc() || value.ptr != end || std::isnan(bias.bias)) return bad();
  if (*id.ptr == '-') bias.bias = -bias.bias;
  return bias;
}

}  // namespace

void SamplingOptions::Add(CLI::App* app) {
  sampling::SamplingParams& p = params_;
  app->add_option("-s,--seed", seed_, "seed of the draws; -1: a fresh one, which the ledger names")
      ->capture_default_str();
  app->add_option("--temp,--temperature", p.temperature, "temperature; 0: always the most likely token")
      ->capture_default_str();
  app->add_option("--top-k", p.top_k, "keep the K most likely tokens; 0: off")->capture_default_str();
  app->add_option("--top-p", p.top_p, "keep the most likely tokens up to this probability; 1: off")
      ->capture_default_str();
  app->add_option("--min-p", p.min_p, "keep tokens with at least this share of the best one's probability; 0: off")
      ->capture_default_str();
  app->add_option("--typical,--typical-p", p.typical_p, "keep tokens of typical information; 1: off")
      ->capture_default_str();
  app->add_option("--top-nsigma,--top-n-sigma", p.top_n_sigma,
                  "keep logits within this many standard deviations of the best; -1: off")
      ->capture_default_str();
  app->add_option("--xtc-probability", p.xtc_probability, "chance of dropping all but the last likely token; 0: off")
      ->capture_default_str();
  app->add_option("--xtc-threshold", p.xtc_threshold, "what counts as likely for --xtc-probability")
      ->capture_default_str();
  app->add_option("--repeat-last-n", p.repeat_last_n, "tokens that the penalties look back on; 0: none, -1: all")
      ->capture_default_str();
  app->add_option("--repeat-penalty", p.repeat_penalty, "penalty of seen tokens; 1: off")->capture_default_str();
  app->add_option("--presence-penalty", p.presence_penalty, "subtracted once from seen tokens; 0: off")
      ->capture_default_str();
  app->add_option("--frequency-penalty", p.frequency_penalty, "subtracted per occurrence; 0: off")
      ->capture_default_str();
  app->add_option("--dry-multiplier", p.dry_multiplier, "strength of the DRY penalty against repeats; 0: off")
      ->capture_default_str();
  app->add_option("--dry-base", p.dry_base, "growth of the DRY penalty per repeated token")->capture_default_str();
  app->add_option("--dry-allowed-length", p.dry_allowed_length, "repeats shorter than this cost nothing")
      ->capture_default_str();
  app->add_option("--dry-penalty-last-n", p.dry_penalty_last_n, "tokens that DRY looks back on; 0: none, -1: all")
      ->capture_default_str();
  app->add_option("--dry-sequence-breaker", dry_breakers_,
                  "text that no repeat crosses; may be given several times (default: newline, colon, quote, asterisk)")
      ->allow_extra_args(false);
  app->add_option("--logit-bias", logit_bias_, "TOKEN_ID+BIAS or TOKEN_ID-BIAS; may be given several times")
      ->allow_extra_args(false);
}

Result<sampling::SamplingParams> SamplingOptions::Resolve(const text::Tokenizer& tokenizer, int64_t vocab) const {
  sampling::SamplingParams params = params_;
  if (seed_ < -1)
    return Fail(Code::kUsage, "wrong value")
        .Where("--seed")
        .Found(std::to_string(seed_))
        .Expected("0 or more, or -1 for a fresh seed");
  params.seed = seed_ >= 0 ? static_cast<uint64_t>(seed_) : std::random_device{}();
  for (const std::string& text : logit_bias_) {
    RIDGE_ASSIGN_OR_RETURN(const sampling::LogitBias bias, ParseLogitBias(text));
    params.logit_bias.push_back(bias);
  }
  if (params.dry_multiplier != 0) {
    const auto defaults = sampling::DefaultDryBreakers();
    const std::vector<std::string> texts =
        dry_breakers_.empty() ? std::vector<std::string>(defaults.begin(), defaults.end()) : dry_breakers_;
    params.dry_sequence_breakers = sampling::DryBreakers(
        texts, static_cast<int32_t>(vocab),
        [&](TokenId id) { return tokenizer.IsControl(id) ? std::string_view() : tokenizer.Piece(id); },
        [&](std::string_view text) {
          return tokenizer.Encode(text, {.add_special = false}).value_or(std::vector<TokenId>());
        });
  }
  if (Status valid = sampling::Validate(params, static_cast<int32_t>(vocab)); !valid) {
    Error& error = valid.error();  // every parameter came from a flag
    error.code = Code::kUsage;
    if (!error.where.empty()) {
      std::ranges::replace(error.where, '_', '-');
      error.where = "--" + error.where;
    }
    return std::unexpected(std::move(valid).error());
  }
  return params;
}

Json SamplingJson(const sampling::SamplingParams& p) {
  Json stages = Json::array();
  for (const sampling::Stage stage : p.samplers) stages.push_back(std::string(sampling::Name(stage)));
  Json bias = Json::array();
  for (const sampling::LogitBias& entry : p.logit_bias) {
    bias.push_back({{"token", entry.id},
                    {"bias", std::isinf(entry.bias) ? Json(entry.bias < 0 ? "-inf" : "inf") : Json(entry.bias)}});
  }
  return {{"seed", p.seed},
          {"temperature", p.temperature},
          {"top_k", p.top_k},
          {"top_p", p.top_p},
          {"min_p", p.min_p},
          {"typical_p", p.typical_p},
          {"top_n_sigma", p.top_n_sigma},
          {"xtc_probability", p.xtc_probability},
          {"xtc_threshold", p.xtc_threshold},
          {"repeat_last_n", p.repeat_last_n},
          {"repeat_penalty", p.repeat_penalty},
          {"presence_penalty", p.presence_penalty},
          {"frequency_penalty", p.frequency_penalty},
          {"dry_multiplier", p.dry_multiplier},
          {"dry_base", p.dry_base},
          {"dry_allowed_length", p.dry_allowed_length},
          {"dry_penalty_last_n", p.dry_penalty_last_n},
          {"logit_bias", std::move(bias)},
          {"samplers", std::move(stages)}};
}

}  // namespace ridge::app
