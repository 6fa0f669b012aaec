#include "tune_speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "lab/experiments/prompts.h"
#include "service/service.h"
#include "speculation_options.h"

namespace ridge::app {
namespace {

constexpr double kAnswer_s = 0.5;  // about as long as an answer takes
constexpr size_t kPromptsPerTurn = 4;

struct Answer {
  std::vector<TokenId> ids;
  double token_s = 0;
};

Result<Answer> Ask(service::Service& service, const lab::FixedPrompt& prompt, engine::Speculation mode,
                   int64_t tokens) {
  const Json messages = {{{"role", "user"}, {"content", prompt.text}}};
  service::TextRequest request{.max_tokens = tokens, .ignore_end = true, .speculation = mode};
  request.sampling.temperature = 0;
  if (service.has_template())
    request.messages = &messages;
  else
    request.prompt = prompt.text;
  RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<service::TextStream> stream, service.Submit(request));
  service::TextEvent event;
  while (stream->Next(std::chrono::milliseconds(1000), event) != service::TextStream::Got::kEnd) {
  }
  if (stream->error()) return std::unexpected(*stream->error());
  const service::Receipt& receipt = stream->receipt();
  if (!receipt.predicted_per_second())
    return Fail(Code::kUnavailable, "an answer too short to be timed").Found(fmt::format("prompt {}", prompt.id));
  return Answer{stream->ids(), 1 / *receipt.predicted_per_second()};
}

}  // namespace

Result<SpeculationSearch> SearchSpeculation(service::RuntimeOptions options, double step_s) {
  using engine::Speculation;
  options.drafts = kDraftRows;
  options.logit_rows = 1 + kDraftRows;
  options.context_tokens = 1024;
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<service::Runtime> runtime, service::Runtime::Load(options));
  RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<service::Service> service, service::Service::Create(std::move(runtime)));
  std::vector<std::string> names;
  for (const Speculation mode : SpeculationSearch::kModes) names.emplace_back(engine::Name(mode));
  SpeculationSearch s{.elimination = lab::Elimination(names, 0),
                      .refused = std::vector<std::string>(names.size()),
                      .tokens = std::clamp<int64_t>(static_cast<int64_t>(kAnswer_s / step_s), 24, 64)};
  const std::vector<lab::FixedPrompt>& prompts = lab::FixedPrompts();
  std::vector<size_t> next(names.size());
  while (const auto turn = s.elimination.Next()) {
    const Speculation mode = SpeculationSearch::kModes[*turn];
    std::vector<double> ratios;
    for (size_t i = 0; i < kPromptsPerTurn && s.refused[*turn].empty(); i++) {
      const lab::FixedPrompt& prompt = prompts[next[*turn]++ % prompts.size()];
      std::vector<double> off, with;
      std::vector<TokenId> ids;
      for (const bool changed : {false, true, true, false}) {
        RIDGE_ASSIGN_OR_RETURN(const Answer answer,
                               Ask(*service, prompt, changed ? mode : Speculation::kOff, s.tokens));
        if (ids.empty()) ids = answer.ids;
        if (answer.ids != ids) s.refused[*turn] = fmt::format("its answer to {} is another one", prompt.id);
        (changed ? with : off).push_back(answer.token_s);
      }
      for (size_t n = 0; n < off.size(); n++) ratios.push_back(with[n] / off[n]);
    }
    s.elimination.Add(*turn, s.refused[*turn].empty() ? ratios : std::vector<double>());
  }
  return s;
}

}  // namespace ridge::app
