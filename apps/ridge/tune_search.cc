#include "tune_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/quantity.h"
#include "base/topology.h"
#include "lab/machine.h"
#include "lab/statistics.h"
#include "model_options.h"
#include "tune_speculation.h"

namespace ridge::app {
namespace {

using backend::KvType;

constexpr int64_t kBlocks = 4;  // of pairs a turn: two pairs each

std::string KvName(KvType k, KvType v) {
  const std::string name(backend::Name(k));
  return k == v ? name : name + "/" + std::string(backend::Name(v));
}

// KV types by falling bits. K is the more sensitive one.
std::vector<std::pair<KvType, KvType>> KvTypes(KvType k, KvType v) {
  std::vector<std::pair<KvType, KvType>> types = {{k, v}};
  for (const auto& pair : {std::pair{KvType::kF16, KvType::kF16}, std::pair{KvType::kQ8_0, KvType::kQ8_0},
                           std::pair{KvType::kQ8_0, KvType::kQ4_0}, std::pair{KvType::kQ4_0, KvType::kQ4_0}}) {
    if (std::ranges::find(types, pair) == types.end()) types.push_back(pair);
  }
  return types;
}

// A request of so many prompt tokens and a quarter as many of an answer.
std::vector<double> RequestRatios(const Pairs& p) {
  std::vector<double> ratios;
  for (size_t i = 0; i < p.prefill.size(); i++)
    ratios.push_back((4 * p.with_token_s[i] + p.with_step_s[i]) / (4 * p.base_token_s[i] + p.base_step_s[i]));
  return ratios;
}

void Append(std::vector<double>& to, const std::vector<double>& more) { to.insert(to.end(), more.begin(), more.end()); }

}  // namespace

service::RuntimeOptions Tuning::OptionsOf(const TuneSetting& s) const {
  service::RuntimeOptions o = options_;
  o.path = files_[s.file];
  o.threads = s.threads;
  o.chunk_tokens = s.chunk;
  o.batch_tokens = std::max<int64_t>(o.batch_tokens.value_or(2048), s.chunk);
  o.k_type = s.k;
  o.v_type = s.v;
  o.flash_attention = s.flash;
  return o;
}

Result<std::unique_ptr<Arm>> Tuning::Load(const TuneSetting& s) const {
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Arm> arm, Arm::Load(OptionsOf(s), {.depth = c_.prompt, .prompt = c_.prompt}));
  RIDGE_RETURN_IF_ERROR(CheckMemory(arm->runtime()));
  return arm;
}

Status Tuning::CheckMemory(const service::Runtime& runtime) const {
  if (!c_.memory_bytes || runtime.memory().peak_bytes <= *c_.memory_bytes) return {};
  return Fail(Code::kResourceExhausted, "more memory than --max-memory")
      .Found(fmt::format("{:.3f} GB", static_cast<double>(runtime.memory().peak_bytes) / 1e9))
      .Expected(fmt::format("at most {:.3f} GB", static_cast<double>(*c_.memory_bytes) / 1e9));
}

// One model in several formats, as far as the headers tell; the vocabularies are compared with the quality.
Status Tuning::CheckFiles() const {
  std::string shape;
  for (const std::string& path : files_) {
    service::RuntimeOptions o = options_;
    o.path = path;
    o.dry_run = true;
    RIDGE_ASSIGN_OR_RETURN(const auto planned, service::Runtime::Load(o));
    const model::Config& c = planned->model().config();
    const std::string here =
        fmt::format("{} of {} layers, {} wide, {}", c.architecture, c.layers, c.width, Count(c.vocab, "token"));
    if (shape.empty()) shape = here;
    if (here != shape)
      return Fail(Code::kInvalidArgument, "not the same model in another format")
          .Where(path)
          .Found(here)
          .Expected(shape + ", as " + files_[0]);
  }
  return {};
}

Result<std::optional<TuneQuality::Found>> Tuning::QualityOf(const TuneSetting& s) {
  if (!c_.quality) return std::optional<TuneQuality::Found>();
  const auto key = std::tuple(s.file, s.k, s.v, s.flash);
  if (const auto known = qualities_.find(key); known != qualities_.end()) return std::optional(known->second);
  if (key == best_) return std::optional(qualities_[key] = quality_->Same());
  RIDGE_ASSIGN_OR_RETURN(const TuneQuality::Found found, quality_->Of(OptionsOf(s)));
  qualities_[key] = found;
  return std::optional(found);
}

Result<std::string> Tuning::WhyNot(const TuneSetting& s) {
  service::RuntimeOptions o = OptionsOf(s);
  o.dry_run = true;
  const auto planned = service::Runtime::Load(o);
  if (!planned) return planned.error().Message();
  if (const Status fits = CheckMemory(**planned); !fits) return fits.error().Message();
  const auto quality = QualityOf(s);
  if (!quality) {
    if (quality.error().code == Code::kInvalidArgument) return std::unexpected(quality.error());  // another model
    return quality.error().Message();
  }
  if (!*quality || (*quality)->same_top.low >= *c_.quality) return std::string();
  return fmt::format(
      "below --min-quality {}: the same next token in {:.1f} % of {}, at least {:.1f} % with "
      "95 % confidence",
      *c_.quality, 100 * (*quality)->same_top.share, Count((*quality)->same_top.positions, "position"),
      100 * (*quality)->same_top.low);
}

// What is there, if it meets memory and quality; else the nearest that does: a better or smaller file, a smaller KV.
Status Tuning::FindStart() {
  std::vector<size_t> order(files_.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  const auto size = [&](size_t i) {
    std::error_code ignored;
    return std::filesystem::file_size(files_[i], ignored);
  };
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return size(a) > size(b); });
  if (c_.quality) {
    TuneSetting best = first_;
    best.file = order[0];
    best.k = best.v = KvType::kF16;
    best.flash = true;
    best_ = {best.file, best.k, best.v, best.flash};
    RIDGE_ASSIGN_OR_RETURN(quality_, TuneQuality::Create(OptionsOf(best)));
  }
  std::ranges::stable_sort(order, [](size_t a, size_t b) { return (a == 0) > (b == 0); });  // the present one first
  std::string why;
  for (const auto& [k, v] :
       c_.quality&& Wanted("cache") ? KvTypes(first_.k, first_.v) : std::vector{std::pair{first_.k, first_.v}}) {
    for (const size_t file : order) {
      if (file != 0 && !Wanted("format")) continue;
      TuneSetting s = first_;
      s.file = file;
      s.k = k;
      s.v = v;
      RIDGE_ASSIGN_OR_RETURN(const std::string not_this, WhyNot(s));
      if (not_this.empty()) {
        chosen_ = s;
        return {};
      }
      if (why.empty()) why = not_this;
    }
  }
  return Fail(Code::kOutOfRange, "no settings meet the constraints")
      .Where(files_[0])
      .Found(why)
      .Remedy("a smaller model or format, or a lower floor: see ridge plan");
}

bool Tuning::Wanted(const std::string& knob) {
  return c_.search.empty() || std::ranges::find(c_.search, knob) != c_.search.end();
}

bool Tuning::Searched(const std::string& knob) const {
  return std::ranges::any_of(searched_, [&](const Knob& k) { return k.name == knob; });
}

// One setting, the others as found so far.
Status Tuning::SearchKnob(const std::string& name, const std::string& field, Phase phase,
                          const std::vector<Value>& values, size_t present) {
  std::vector<std::string> names;
  for (const Value& v : values) names.push_back(v.name);
  const size_t n = values.size();
  Knob s{.name = name,
         .field = field,
         .phase = phase == Phase::kDecode    ? "decode"
                  : phase == Phase::kPrefill ? "prefill"
                                             : "request",
         .elimination = lab::Elimination(names, present),
         .refused = std::vector<std::string>(n),
         .quality = std::vector<std::optional<TuneQuality::Found>>(n),
         .ttft_ms = std::vector<std::optional<double>>(n),
         .gap_ms = std::vector<std::optional<double>>(n)};
  for (size_t i = 0; i < n; i++) {
    if (i != present) {
      RIDGE_ASSIGN_OR_RETURN(s.refused[i], WhyNot(values[i].setting));
      if (!s.refused[i].empty()) s.elimination.Add(i, {});
    }
    if (const auto q = qualities_.find(
            std::tuple(values[i].setting.file, values[i].setting.k, values[i].setting.v, values[i].setting.flash));
        q != qualities_.end())
      s.quality[i] = q->second;
  }
  RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<Arm> base, Load(chosen_));
  std::map<size_t, std::unique_ptr<Arm>> arms;
  std::vector<std::vector<double>> steps(n), tokens(n);
  while (const auto turn = s.elimination.Next()) {
    if (!arms.contains(*turn)) {
      auto arm = Load(values[*turn].setting);
      if (!arm) {
        s.refused[*turn] = arm.error().Message();
        s.elimination.Add(*turn, {});
        continue;
      }
      arms[*turn] = std::move(*arm);
    }
    RIDGE_ASSIGN_OR_RETURN(const Pairs pairs, Interleave(*base, *arms[*turn], kBlocks));
    Append(steps[*turn], pairs.with_step_s), Append(tokens[*turn], pairs.with_token_s);
    Append(steps[present], pairs.base_step_s), Append(tokens[present], pairs.base_token_s);
    s.elimination.Add(*turn, phase == Phase::kPrefill  ? pairs.prefill
                             : phase == Phase::kDecode ? pairs.decode
                                                       : RequestRatios(pairs));
    // Where another copy of the model would not fit beside it, it is loaded again when its turn comes.
    const bool tight = ReadMemory().available_bytes < 2 * arms[*turn]->runtime().memory().peak_bytes;
    if (tight || s.elimination.entries()[*turn].state != lab::Elimination::State::kOpen) arms.erase(*turn);
  }
  std::vector<std::optional<bool>> meets(n);
  for (size_t i = 0; i < n; i++) {
    if (steps[i].empty()) continue;
    s.ttft_ms[i] = 1e3 * lab::Median(tokens[i]) * static_cast<double>(c_.prompt);
    s.gap_ms[i] = 1e3 * lab::Median(steps[i]);
    meets[i] = (!c_.ttft_ms || *s.ttft_ms[i] <= *c_.ttft_ms) && (!c_.gap_ms || *s.gap_ms[i] <= *c_.gap_ms);
  }
  s.chosen = lab::Choose(s.elimination, meets);
  s.because = s.chosen != s.elimination.winner() ? "the fastest that meets --max-ttft and --max-gap"
              : s.chosen == present              ? "nothing was proved faster"
                                                 : "proved faster";
  chosen_ = values[s.chosen].setting;
  searched_.push_back(std::move(s));
  return {};
}

Status Tuning::SearchFormat() {
  if (files_.size() < 2) {
    left_.emplace_back("format", "one file was given: --formats names others of the same model");
    return {};
  }
  std::vector<Value> values;
  for (size_t i = 0; i < files_.size(); i++) {
    TuneSetting s = chosen_;
    s.file = i;
    values.push_back({files_[i], s});
  }
  return SearchKnob("format", "format", Phase::kRequest, values, chosen_.file);
}

Status Tuning::SearchThreads() {
  std::set<int64_t> threads = {chosen_.threads};
  const int64_t cpus = std::max<int64_t>(1, static_cast<int64_t>(ReadCpuLimits().allowed.size()));
  for (int64_t n = 1; n < cpus; n = n < 8 ? n + 1 : 2 * n) threads.insert(n);
  threads.insert(cpus);
  std::vector<Value> values;
  size_t present = 0;
  for (const int64_t n : threads) {
    TuneSetting s = chosen_;
    s.threads = static_cast<int>(n);
    if (n == chosen_.threads) present = values.size();
    values.push_back({std::to_string(n), s});
  }
  return SearchKnob("threads", "n_threads", Phase::kDecode, values, present);
}

Status Tuning::SearchChunk() {
  std::set<int64_t> chunks = {chosen_.chunk};
  for (const int64_t n : {32, 64, 128, 256, 512}) {
    if (n < 2 * c_.prompt) chunks.insert(n);
  }
  std::vector<Value> values;
  size_t present = 0;
  for (const int64_t n : chunks) {
    TuneSetting s = chosen_;
    s.chunk = n;
    if (n == chosen_.chunk) present = values.size();
    values.push_back({std::to_string(n), s});
  }
  left_.emplace_back("n_batch", "-b only bounds -ub: no step computes more than -ub tokens of a prompt");
  return SearchKnob("ubatch", "n_ubatch", Phase::kPrefill, values, present);
}

Status Tuning::SearchCache() {
  if (!c_.quality) {
    left_.emplace_back("cache_types", "they change answers: --min-quality says how much may be lost");
    return {};
  }
  std::vector<Value> values;
  size_t present = 0;
  for (const auto& [k, v] : KvTypes(first_.k, first_.v)) {
    TuneSetting s = chosen_;
    s.k = k;
    s.v = v;
    if (k == chosen_.k && v == chosen_.v) present = values.size();
    values.push_back({KvName(k, v), s});
  }
  left_.emplace_back("cache_types bf16 and f32", "they take no fewer bytes than f16");
  return SearchKnob("cache", "cache_types", Phase::kRequest, values, present);
}

Status Tuning::SearchFlash() {
  if (!c_.quality) {
    left_.emplace_back("flash_attn", "it changes the bits of answers: --min-quality says how much may be lost");
    return {};
  }
  std::vector<Value> values;
  for (const bool flash : {true, false}) {
    TuneSetting s = chosen_;
    s.flash = flash;
    values.push_back({flash ? "on" : "off", s});
  }
  return SearchKnob("flash", "flash_attn", Phase::kRequest, values, chosen_.flash ? 0 : 1);
}

Status Tuning::SearchSpeculation() {
  left_.emplace_back("draft_model",
                     "which model drafts is not a setting of this one: give run or serve --draft-model, and --spec "
                     "auto measures as it goes whether that pays");
  auto found = app::SearchSpeculation(OptionsOf(chosen_), step_s_);
  if (!found) {
    left_.emplace_back("speculation", found.error().Message());
    return {};
  }
  const size_t n = SpeculationSearch::kModes.size();
  Knob s{.name = "speculation",
         .field = "speculation",
         .phase = fmt::format("answers of {} to the fixed prompts", Count(found->tokens, "token")),
         .elimination = std::move(found->elimination),
         .refused = std::move(found->refused),
         .quality = std::vector<std::optional<TuneQuality::Found>>(n),
         .ttft_ms = std::vector<std::optional<double>>(n),
         .gap_ms = std::vector<std::optional<double>>(n)};
  s.chosen = s.elimination.winner();
  s.because = s.chosen == s.elimination.present()
                  ? "nothing was proved faster than off: run's and serve's own defaults stay"
                  : "proved faster";
  chosen_.speculation = SpeculationSearch::kModes[s.chosen];
  searched_.push_back(std::move(s));
  return {};
}

Status Tuning::Measure() {
  RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<Arm> arm, Load(chosen_));
  std::vector<double> steps, tokens;
  for (int i = 0; i < 8; i++) {
    RIDGE_ASSIGN_OR_RETURN(const double step_s, arm->StepSeconds());
    RIDGE_ASSIGN_OR_RETURN(const double token_s, arm->PromptSeconds());
    steps.push_back(step_s);
    tokens.push_back(token_s);
  }
  step_s_ = lab::Median(steps);
  token_s_ = lab::Median(tokens);
  slowest_step_s_ = *std::ranges::max_element(steps);
  const double ttft_ms = 1e3 * (token_s_ * static_cast<double>(c_.prompt));
  if (c_.ttft_ms && ttft_ms > *c_.ttft_ms)
    problems_.push_back(
        fmt::format("the first token of {} takes {:.0f} ms, --max-ttft {:.0f}", c_.prompt, ttft_ms, *c_.ttft_ms));
  if (c_.gap_ms && 1e3 * slowest_step_s_ > *c_.gap_ms)
    problems_.push_back(fmt::format("a token takes {:.1f} ms, --max-gap {:.1f}", 1e3 * slowest_step_s_, *c_.gap_ms));
  return {};
}

Status Tuning::Search() {
  const lab::CpuTimes before = lab::ReadCpuTimes();
  RIDGE_RETURN_IF_ERROR(CheckFiles());
  RIDGE_ASSIGN_OR_RETURN(const auto planned, [&] {
    service::RuntimeOptions o = options_;
    o.path = files_[0];
    o.dry_run = true;
    return service::Runtime::Load(o);
  }());
  first_ = {.threads = planned->threads().threads,
            .chunk = planned->chunk_tokens(),
            .k = options_.k_type,
            .v = options_.v_type,
            .flash = options_.flash_attention};
  RIDGE_RETURN_IF_ERROR(FindStart());
  constexpr std::pair<const char*, Status (Tuning::*)()> kSteps[] = {{"format", &Tuning::SearchFormat},
                                                                     {"threads", &Tuning::SearchThreads},
                                                                     {"ubatch", &Tuning::SearchChunk},
                                                                     {"cache", &Tuning::SearchCache},
                                                                     {"flash", &Tuning::SearchFlash}};
  for (const auto& [name, search] : kSteps) {
    if (Wanted(name)) {
      RIDGE_RETURN_IF_ERROR((this->*search)());
    } else {
      left_.emplace_back(name, "--search leaves it out");
    }
  }
  RIDGE_RETURN_IF_ERROR(Measure());
  if (Wanted("speculation")) {
    RIDGE_RETURN_IF_ERROR(SearchSpeculation());
  } else {
    left_.emplace_back("speculation", "--search leaves it out");
  }
  quiet_ = lab::Judge(lab::Between(before, lab::ReadCpuTimes()));
  return {};
}

}  // namespace ridge::app
