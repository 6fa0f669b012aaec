#include "sampling/params.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>

namespace ridge::sampling {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct StageName {
  Stage stage;
  std::string_view name;
};
constexpr StageName kStageNames[] = {
    {Stage::kTopNSigma, "top_n_sigma"},
    {Stage::kTopK, "top_k"},
    {Stage::kTypicalP, "typ_p"},
    {Stage::kTopP, "top_p"},
    {Stage::kMinP, "min_p"},
    {Stage::kXtc, "xtc"},
    {Stage::kTemperature, "temperature"},
};

Fail Bad(std::string field, std::string found, std::string expected) {
  return Fail(Code::kInvalidArgument, "invalid sampling parameter")
      .Where(std::move(field))
      .Found(std::move(found))
      .Expected(std::move(expected));
}

Status CheckNumber(std::string_view field, double value, double low, double high) {
  if (value >= low && value <= high && std::isfinite(value)) return {};
  std::string expected =
      high == kInfinity ? (low == -kInfinity ? "a finite number" : fmt::format("a finite number of at least {}", low))
                        : fmt::format("a number from {} to {}", low, high);
  return Bad(std::string(field), fmt::format("{}", value), std::move(expected));
}

Status CheckCount(std::string_view field, int32_t value, int32_t low) {
  if (value >= low) return {};
  return Bad(std::string(field), fmt::format("{}", value), fmt::format("a whole number of at least {}", low));
}

Status CheckToken(std::string field, TokenId id, int32_t vocab_size) {
  if (id >= 0 && id < vocab_size) return {};
  return Bad(std::move(field), fmt::format("token {}", id), fmt::format("a token from 0 to {}", vocab_size - 1));
}

}  // namespace

std::string_view Name(Stage stage) {
  for (const StageName& entry : kStageNames) {
    if (entry.stage == stage) return entry.name;
  }
  return "?";
}

Result<Stage> ParseStage(std::string_view name) {
  if (name == "typical_p") return Stage::kTypicalP;
  for (const StageName& entry : kStageNames) {
    if (entry.name == name) return entry.stage;
  }
  std::string known;
  for (const StageName& entry : kStageNames) known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  return Bad("samplers", std::string(name), std::move(known));
}

Status Validate(const SamplingParams& p, int32_t vocab_size) {
  if (vocab_size < 1) return Bad("vocab_size", fmt::format("{}", vocab_size), "at least 1");
  RIDGE_RETURN_IF_ERROR(CheckNumber("temperature", p.temperature, 0, kInfinity));
  RIDGE_RETURN_IF_ERROR(CheckCount("top_k", p.top_k, -1));
  RIDGE_RETURN_IF_ERROR(CheckNumber("top_p", p.top_p, 0, 1));
  RIDGE_RETURN_IF_ERROR(CheckNumber("min_p", p.min_p, 0, 1));
  RIDGE_RETURN_IF_ERROR(CheckNumber("typical_p", p.typical_p, 0, 1));
  RIDGE_RETURN_IF_ERROR(CheckNumber("top_n_sigma", p.top_n_sigma, -kInfinity, kInfinity));
  RIDGE_RETURN_IF_ERROR(CheckNumber("xtc_probability", p.xtc_probability, 0, 1));
  RIDGE_RETURN_IF_ERROR(CheckNumber("xtc_threshold", p.xtc_threshold, 0, 1));
  RIDGE_RETURN_IF_ERROR(CheckCount("min_keep", p.min_keep, 0));
  RIDGE_RETURN_IF_ERROR(CheckCount("repeat_last_n", p.repeat_last_n, -1));
  RIDGE_RETURN_IF_ERROR(CheckNumber("repeat_penalty", p.repeat_penalty, 0, kInfinity));
  if (p.repeat_penalty == 0.0) return Bad("repeat_penalty", "0", "a finite number above 0 (1 is off)");
  RIDGE_RETURN_IF_ERROR(CheckNumber("presence_penalty", p.presence_penalty, -kInfinity, kInfinity));
  RIDGE_RETURN_IF_ERROR(CheckNumber("frequency_penalty", p.frequency_penalty, -kInfinity, kInfinity));
  RIDGE_RETURN_IF_ERROR(CheckNumber("dry_multiplier", p.dry_multiplier, 0, kInfinity));
  if (p.dry_base != 0.0) RIDGE_RETURN_IF_ERROR(CheckNumber("dry_base", p.dry_base, 1, kInfinity));
  RIDGE_RETURN_IF_ERROR(CheckCount("dry_allowed_length", p.dry_allowed_length, 1));
  RIDGE_RETURN_IF_ERROR(CheckCount("dry_penalty_last_n", p.dry_penalty_last_n, -1));
  for (size_t i = 0; i < p.dry_sequence_breakers.size(); ++i) {
    const std::string field = fmt::format("dry_sequence_breakers[{}]", i);
    if (p.dry_sequence_breakers[i].empty()) return Bad(field, "no token", "at least one token");
    for (const TokenId id : p.dry_sequence_breakers[i]) RIDGE_RETURN_IF_ERROR(CheckToken(field, id, vocab_size));
  }
  for (size_t i = 0; i < p.logit_bias.size(); ++i) {
    const auto [id, bias] = p.logit_bias[i];
    if (id >= 0 && id < vocab_size && (bias == -kInfinity || std::isfinite(bias)))
      continue;  // there may be as many as tokens
    const std::string field = fmt::format("logit_bias[{}]", i);
    RIDGE_RETURN_IF_ERROR(CheckToken(field, id, vocab_size));
    RIDGE_RETURN_IF_ERROR(CheckNumber(field, bias, -kInfinity, kInfinity));
  }
  for (size_t i = 0; i < p.samplers.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (p.samplers[i] == p.samplers[j])
        return Bad("samplers", fmt::format("{} twice", Name(p.samplers[i])), "each at most once");
    }
  }
  return {};
}

}  // namespace ridge::sampling
