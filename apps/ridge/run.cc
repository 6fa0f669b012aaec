// ridge run: a text completed, a message answered, or a chat, in the terminal; ends with the time ledger.
#include <fmt/format.h>
#include <unistd.h>

#include <limits>
#include <memory>
#include <utility>

#include "base/planted.h"
#include "base/quantity.h"
#include "ceilings.h"
#include "commands.h"
#include "interrupt.h"
#include "ledger.h"
#include "line_reader.h"
#include "model_options.h"
#include "option_help.h"
#include "profile.h"
#include "sampling_options.h"
#include "service/service.h"
#include "speculation_options.h"
#include "text_input.h"

namespace ridge::app {
namespace {

using service::Service;
using service::TextEvent;
using service::TextRequest;
using service::TextStream;

constexpr Stage kStages[] = {Stage::kTokenize, Stage::kQueue,  Stage::kPrefill,
                             Stage::kDecode,   Stage::kSample, Stage::kDetokenize};
constexpr std::chrono::milliseconds kPoll{50};  // how soon Ctrl-C is noticed while the engine computes

struct Options {
  ModelOptions model;
  SamplingOptions sampling;
  SpeculationOptions speculation{"off"};
  TextInput input;
  int64_t max_tokens = -1, op_trace = 0;
  std::string system, planted;
  bool chat = false, single_turn = false, no_chat = false, ignore_eos = false, op_times = false;
  std::vector<std::string> stops;
};

struct Answer {
  std::string text;
  std::vector<TokenId> prompt_ids, ids;
  service::Receipt receipt;
};

class Run {
 public:
  Run(const Options& options, Output& out) : options_(options), out_(out), interrupt_(out.json) {}
  Status Execute();

 private:
  Status CheckUsage() const;
  Status Load();
  Status Single(const std::string& text);
  Status Chat(std::string first);
  Result<std::string> ReadMessage();
  TextRequest NewRequest() const;
  Result<Answer> Generate(const TextRequest& request);
  Status Finish(const Answer& answer);
  void PrintLedger() const;
  Json Config() const;
  // The text is a message for the model's chat template, not a text to be completed.
  bool templated() const {
    return options_.chat || options_.single_turn || !options_.system.empty() || !options_.input.given();
  }
  // More messages follow from stdin.
  bool goes_on() const { return !options_.single_turn && (options_.chat || !options_.input.given()); }

  const Options& options_;
  Output& out_;
  Interrupt interrupt_;
  std::unique_ptr<Service> service_;
  sampling::SamplingParams sampling_;
  engine::Speculation speculation_ = engine::Speculation::kOff;
  std::shared_ptr<const Profile> profile_;
  Ledger ledger_;
};

Status Run::CheckUsage() const {
  const auto usage = [](std::string what) -> Status {
    return Fail(Code::kUsage, std::move(what)).Remedy("see ridge run --help");
  };
  if (options_.no_chat) {
    if (options_.chat) return usage("-cnv and -no-cnv exclude one another");
    if (options_.single_turn) return usage("-st is a turn of a chat: it does not go with -no-cnv");
    if (!options_.system.empty()) return usage("-sys begins a chat: it does not go with -no-cnv");
    if (!options_.input.given()) return usage("nothing to complete: give -p TEXT or -f FILE");
  }
  if (out_.json && goes_on())
    return usage("--json gives one answer: give -p TEXT or -f FILE, and -st where it is a turn of a chat");
  if (options_.op_trace > 0 && (!out_.json || options_.op_times))
    return usage("--op-trace goes into the document of --json, and not beside --op-times");
  if (options_.max_tokens < -1)
    return usage(fmt::format("-n must be 0 or more, or -1 for no limit, not {}", options_.max_tokens));
  if (options_.input.given() || options_.chat || options_.single_turn || options_.no_chat) return {};
  if (isatty(STDIN_FILENO) == 0)
    return usage("nothing to answer, and stdin is not a terminal: give -p TEXT, -f FILE, or -cnv to chat line by line");
  return {};
}

Status Run::Load() {
  RIDGE_ASSIGN_OR_RETURN(SpeculationOptions::Loaded models, options_.speculation.Load(options_.model, {}, 1));
  std::unique_ptr<service::Runtime> runtime = std::move(models.model);
  speculation_ = models.speculation;
  profile_ = models.profile;
  runtime->program().TraceOps(options_.op_times);
  runtime->program().TraceSteps(options_.op_trace);
  const service::LoadTimes& times = runtime->times();
  ledger_.load_ms = times.open_ms + times.model_ms + times.compile_ms;
  if (models.draft) {
    const service::LoadTimes& draft = models.draft->times();
    ledger_.load_ms += draft.open_ms + draft.model_ms + draft.compile_ms;
  }
  const int64_t vocab = runtime->model().graph().vocab();
  RIDGE_ASSIGN_OR_RETURN(service_, Service::Create(std::move(runtime), {}, std::move(models.draft)));
  ledger_.vocabulary_ms = service_->create_ms();
  ledger_.load_ms += ledger_.vocabulary_ms;
  RIDGE_ASSIGN_OR_RETURN(sampling_, options_.sampling.Resolve(service_->tokenizer(), vocab));
  return {};
}

Status Run::Execute() {
  RIDGE_RETURN_IF_ERROR(CheckUsage());
  RIDGE_RETURN_IF_ERROR(options_.speculation.Resolve());  // a wrong flag is said before the text is read
  if (!options_.planted.empty()) {
    RIDGE_RETURN_IF_ERROR(Plant(options_.planted, kStages));
    Note(fmt::format("a sleep is planted on purpose: {} ms", options_.planted));
  }
  RIDGE_RETURN_IF_ERROR(options_.system.empty() ? Status() : CheckUtf8(options_.system, "-sys"));
  std::string text;
  if (options_.input.given()) {
    RIDGE_ASSIGN_OR_RETURN(text, options_.input.Read());
  }
  RIDGE_RETURN_IF_ERROR(Load());
  interrupt_.Count();
  if (templated() && !service_->has_template()) {
    return Fail(Code::kUnsupported, "the model has no chat template")
        .Where(service_->runtime().model().file().path())
        .Remedy("complete text with -p or -f alone, or use an instruction-tuned model");
  }
  if (!templated() && service_->has_template() && !options_.no_chat)
    Note("the text is completed as it is; -st takes it as a message for the model's chat template");
  if (goes_on()) return Chat(std::move(text));
  if (!options_.input.given()) {
    RIDGE_ASSIGN_OR_RETURN(text, ReadMessage());
  }
  return Single(text);
}

TextRequest Run::NewRequest() const {
  TextRequest request;
  request.max_tokens = options_.max_tokens < 0 ? -1 : options_.max_tokens;
  request.ignore_end = options_.ignore_eos;
  request.stop = options_.stops;
  request.speculation = speculation_;
  request.sampling = sampling_;
  return request;
}

// Shows the answer as it comes. Ctrl-C ends it and keeps what was said.
Result<Answer> Run::Generate(const TextRequest& request) {
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<TextStream> stream, service_->Submit(request));
  Answer answer;
  answer.prompt_ids = stream->prompt_ids();
  bool cancelled = false;
  TextEvent event;
  for (TextStream::Got got; (got = stream->Next(kPoll, event)) != TextStream::Got::kEnd;) {
    if (interrupt_.count() > 0 && !cancelled) {
      cancelled = true;
      stream->Cancel();
    }
    if (got != TextStream::Got::kEvent || event.text.empty()) continue;
    answer.text += event.text;
    if (out_.json) continue;
    RIDGE_RETURN_IF_ERROR(out_.Write(event.text));
    RIDGE_RETURN_IF_ERROR(out_.Flush());
  }
  if (stream->error()) return std::unexpected(*stream->error());
  answer.ids = stream->ids();
  answer.receipt = stream->receipt();
  AddTurn(ledger_, answer.receipt);
  if (!out_.json && isatty(STDOUT_FILENO) != 0 && !answer.text.ends_with('\n')) {
    RIDGE_RETURN_IF_ERROR(out_.Write("\n"));
    RIDGE_RETURN_IF_ERROR(out_.Flush());
  }
  if (answer.receipt.nan_logits > 0)
    Note(fmt::format("{} no numbers: the model file is damaged, or this build computes it wrongly",
                     Count(answer.receipt.nan_logits, "logit was", "logits were")));
  return answer;
}

Json Run::Config() const {
  Json config = ConfigJson(service_->runtime());
  config.update(SpeculationOptions::ConfigJson(speculation_, service_->draft(), profile_.get()));
  config["n_predict"] = options_.max_tokens < 0 ? -1 : options_.max_tokens;
  config["mode"] = templated() ? "template" : "text";
  config["system_prompt"] = options_.system.empty() ? Json(nullptr) : Json(options_.system);
  config["ignore_eos"] = options_.ignore_eos;
  config["stop"] = options_.stops;
  config["seed"] = sampling_.seed;
  config["sampling"] = SamplingJson(sampling_);
  config["trace_every"] = options_.op_trace;
  config["planted_sleep"] = options_.planted.empty() ? Json(nullptr) : Json(options_.planted);
  return config;
}

Status Run::Single(const std::string& text) {
  TextRequest request = NewRequest();
  Json messages = Json::array();
  if (templated()) {
    if (!options_.system.empty()) messages.push_back({{"role", "system"}, {"content", options_.system}});
    messages.push_back({{"role", "user"}, {"content", text}});
    request.messages = &messages;
  } else {
    request.prompt = text;
  }
  RIDGE_ASSIGN_OR_RETURN(const Answer answer, Generate(request));
  return Finish(answer);
}

void Run::PrintLedger() const {
  const service::Runtime& runtime = service_->runtime();
  std::fprintf(stderr, "\n%s", LedgerTable(ledger_, runtime, Ceilings::Cached()).c_str());
  if (options_.op_times) std::fprintf(stderr, "\n%s", OpTimesTable(runtime.program()).c_str());
}

Status Run::Finish(const Answer& answer) {
  ledger_.total_ms = MsSinceStart();
  const service::Runtime& runtime = service_->runtime();
  if (out_.json) {
    Json document = {{"text", answer.text}, {"ids", answer.ids}, {"prompt_ids", answer.prompt_ids}};
    document.update(LedgerJson(ledger_, runtime, Ceilings::Cached()));
    document["config"] = Config();
    document["plan"] = PlanJson(runtime.program());
    if (options_.op_times) document["op_times"] = OpTimesJson(runtime.program());
    if (options_.op_trace > 0)
      document["op_trace"] = OpTraceJson(runtime.program().op_trace(), {{0, std::numeric_limits<double>::infinity()}});
    RIDGE_RETURN_IF_ERROR(out_.Document(document));
  } else {
    PrintLedger();
  }
  if (answer.receipt.reason == engine::FinishReason::kCancelled && !options_.chat) {
    return Fail(Code::kCancelled, "interrupted")
        .Found(fmt::format("{} generated", Count(answer.receipt.predicted_n, "token was", "tokens were")));
  }
  if (answer.receipt.reason == engine::FinishReason::kLength &&
      answer.receipt.prompt_n + answer.receipt.predicted_n >= runtime.context_tokens()) {
    Note(fmt::format("the context of {} is full: the answer ends here (more with -c)",
                     Count(runtime.context_tokens(), "token")));
  }
  return {};
}

// The first line of stdin that is not empty.
Result<std::string> Run::ReadMessage() {
  LineReader reader;
  if (isatty(STDIN_FILENO) != 0) std::fputs("> ", stderr);
  const double begin = MsSinceStart();
  std::string line;
  LineReader::Got got;
  while ((got = reader.Next(line)) == LineReader::Got::kLine && line.empty()) {
  }
  ledger_.input_ms += MsSinceStart() - begin;
  if (got != LineReader::Got::kLine)
    return Fail(Code::kInvalidArgument, "nothing to answer").Where("stdin").Found("no message before its end");
  RIDGE_RETURN_IF_ERROR(CheckUtf8(line, "stdin"));
  return line;
}

// One turn per line. Ctrl-C ends the answer and keeps what was said; again, or at the prompt, or the end of the input, it ends the chat.
Status Run::Chat(std::string first) {
  const bool person = isatty(STDIN_FILENO) != 0;
  if (person) Note("one line is one message; Ctrl-C ends an answer, Ctrl-D the chat");
  Json messages = Json::array();
  if (!options_.system.empty()) messages.push_back({{"role", "system"}, {"content", options_.system}});
  LineReader reader;
  Answer answer;
  for (std::string line = std::move(first);; line.clear()) {
    if (line.empty()) {
      if (person) std::fputs("> ", stderr);
      const double begin = MsSinceStart();
      const LineReader::Got got = reader.Next(line);
      ledger_.input_ms += MsSinceStart() - begin;
      if (got != LineReader::Got::kLine) break;
      if (line.empty()) continue;
      RIDGE_RETURN_IF_ERROR(CheckUtf8(line, "stdin"));
    }
    messages.push_back({{"role", "user"}, {"content", line}});
    TextRequest request = NewRequest();
    request.messages = &messages;
    RIDGE_ASSIGN_OR_RETURN(answer, Generate(request));
    if (isatty(STDOUT_FILENO) == 0) RIDGE_RETURN_IF_ERROR(out_.Write("\n"));
    messages.push_back({{"role", "assistant"}, {"content", answer.text}});
    if (interrupt_.count() > 1) break;
    interrupt_.Reset();
  }
  if (ledger_.turns.empty()) {
    if (person || interrupt_.count() > 0) return {};  // who starts a chat may leave it
    return Fail(Code::kInvalidArgument, "nothing to answer").Where("stdin").Found("no message before its end");
  }
  answer.receipt.reason = ledger_.turns.back().reason;
  ledger_.total_ms = MsSinceStart();
  PrintLedger();
  return {};
}

}  // namespace

void AddRun(CLI::App& root, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* app =
      AddSubcommand(root, "run", "complete a text, answer, or chat in the terminal",
                    "ridge run -m smollm2:135m -p \"The capital of France is\" -n 16\n"
                    "  ridge run -m smollm2:135m -st -p \"What is the capital of France?\"\n"
                    "  ridge run -m smollm2:135m -cnv -sys \"Answer in one sentence.\"\n\n"
                    "-p or -f alone is completed as it is, with the answer that /v1/completions gives. With -st it is "
                    "one message of a user, which\n"
                    "the model's chat template puts into words and the model answers; with -sys too, behind a message "
                    "of the system. With -cnv it is the\n"
                    "first message of a chat that goes on line by line from stdin; without -p and -f a terminal starts "
                    "one. Texts are taken as\n"
                    "they are, backslashes too: the shell makes line breaks ($'a\\nb'). Generated text goes to stdout, "
                    "all else to stderr.");
  options->model.Add(app, ModelOptions::Profiles::kStored);
  options->speculation.Add(app);
  options->input.AddTo(app);
  app->add_option("-n,--predict,--n-predict", options->max_tokens,
                  "tokens to generate at most; -1: until the model ends or the context is full")
      ->capture_default_str();
  app->add_option("--sys,--system-prompt", options->system,
                  "a chat, with this message of the system before it; with -p or -f one turn of it");
  app->add_flag("--cnv,--conversation", options->chat,
                "a chat, one line of stdin per message; -p or -f is the first message");
  app->add_flag("--st,--single-turn", options->single_turn,
                "one turn of a chat, then end; without -p and -f the message is a line of stdin");
  app->add_flag("--no-cnv,--no-conversation", options->no_chat,
                "never a chat: without a text nothing is started, and -cnv, -st and -sys are refused");
  app->add_option("-r,--reverse-prompt", options->stops, "end the answer before this text; may be given several times")
      ->allow_extra_args(false);
  app->add_flag("--ignore-eos", options->ignore_eos, "the model's end tokens do not end the answer");
  app->add_option("--op-trace", options->op_trace, help::kOpTrace)
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000));
  app->add_flag("--op-times", options->op_times,
                "time every op of the program, and end with how long each kind took in prefill and decode");
  app->add_option("--plant-sleep", options->planted,
                  "STAGE=MS: a sleep in one stage, to see that the ledger finds it (tokenize, queue, prefill, decode, "
                  "sample, detokenize)");
  options->sampling.Add(app);
  invocation.Bind(app, [options](Output& out) { return Run(*options, out).Execute(); });
}

}  // namespace ridge::app
