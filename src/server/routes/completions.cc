// POST /v1/completions: text or token ids, continued as they are.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/quantity.h"
#include "server/answer.h"
#include "server/api_error.h"
#include "server/fields.h"
#include "server/generation.h"
#include "server/prompts.h"
#include "server/routes.h"
#include "text/utf8.h"

namespace ridge::server {
namespace {

constexpr int64_t kDefaultTokens = 16;  // OpenAI's

struct Asked {
  Generation generation;
  std::vector<Prompt> prompts;
  bool echo = false;
};

Result<Asked> Read(const Context& context, const Request& request) {
  RIDGE_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body));
  Fields fields(body);
  Asked asked;
  Generation& generation = asked.generation;
  ReadGeneration(fields, context, generation);
  ReadPrompts(fields, "prompt", context, kMaxChoices, asked.prompts);
  if (static_cast<int64_t>(asked.prompts.size()) * generation.n > kMaxChoices)
    fields.Refuse("n",
                  fmt::format("{} to each of {}", Count(generation.n, "answer"), Count(asked.prompts.size(), "prompt")),
                  fmt::format("{} at most", Count(kMaxChoices, "answer")));
  generation.text.max_tokens = kDefaultTokens;
  fields.Integer("max_tokens", generation.text.max_tokens, 0, context.runtime().context_tokens());
  int64_t logprobs = -1;
  fields.Integer("logprobs", logprobs, 0, engine::kMaxLogprobs);
  generation.text.logprobs = static_cast<int32_t>(logprobs);
  fields.Bool("echo", asked.echo);
  if (asked.echo) generation.text.prompt_logprobs = generation.text.logprobs;
  fields.NotYet("suffix", {"\"\""});
  fields.NotYet("best_of", {"1"});
  RIDGE_RETURN_IF_ERROR(fields.Done());
  return asked;
}

Result<Reply> Run(const Context& context, const Request& request) {
  RIDGE_ASSIGN_OR_RETURN(Asked asked, Read(context, request));
  Generation& generation = asked.generation;
  generation.text.notify = request.wake;
  AnswerForm form{.stream = generation.stream,
                  .include_usage = generation.include_usage,
                  .logprobs = generation.text.logprobs >= 0,
                  .n = generation.n,
                  .echo_logprobs = generation.text.prompt_logprobs >= 0,
                  .prompt_field = "prompt",
                  .seed = generation.text.sampling.seed,
                  .arrived = request.arrived};
  std::vector<std::unique_ptr<service::TextStream>> streams;
  for (Prompt& prompt : asked.prompts) {
    if (asked.echo) {
      form.echo_special.push_back(!prompt.ids.empty());
      form.echo.push_back(prompt.ids.empty() ? prompt.text
                                             : text::ReplaceInvalidUtf8(context.tokenizer().Decode(prompt.ids, true)));
    }
    generation.text.prompt = std::move(prompt.text);
    generation.text.prompt_ids = std::move(prompt.ids);
    auto group = context.service->SubmitGroup(generation.text, generation.n);
    if (!group) {
      context.counts->cancelled += streams.size();  // those before, which were taken
      return std::unexpected(std::move(group).error());
    }
    std::ranges::move(*group, std::back_inserter(streams));
  }
  return NewAnswer(context, std::move(form), std::move(streams));
}

}  // namespace

Reply Completions(const Context& context, const Request& request) {
  Result<Reply> reply = Run(context, request);
  return reply ? std::move(*reply) : ErrorReply(ToApi(reply.error(), "prompt"));
}

}  // namespace ridge::server
