// The search of `ridge tune`: one setting after the other, each value against what is there, in interleaved pairs, under the constraints.
//
//   Tuning tuning(constraints, options, files);
//   RIDGE_RETURN_IF_ERROR(tuning.Search());
//   tuning.chosen();   tuning.problems();   tuning.Evidence();   tuning.Text();
//
// Guarantees: what is chosen was proved faster than what was there, or is the fastest that meets a limit which what was there does not; the reason
// stands in the evidence. Nothing that changes answers is searched without a quality floor, and nothing below the floor is chosen. What is not searched
// is listed with the reason.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "command.h"
#include "diagnose_arm.h"
#include "engine/request.h"
#include "lab/planning/tune.h"
#include "lab/quiet.h"
#include "service/runtime.h"
#include "tune_quality.h"

namespace ridge::app {

struct TuneConstraints {
  std::optional<uint64_t> memory_bytes;
  std::optional<double> ttft_ms, gap_ms, quality;
  int64_t prompt = 256;
  std::vector<std::string> search;  // names of kTuneKnobs; empty: all
};
inline constexpr const char* kTuneKnobs[] = {"format", "threads", "ubatch", "cache", "flash", "speculation"};

struct TuneSetting {
  size_t file = 0;
  int threads = 1;
  int64_t chunk = 512;
  backend::KvType k = backend::KvType::kF16, v = backend::KvType::kF16;
  bool flash = true;
  engine::Speculation speculation = engine::Speculation::kOff;
};

class Tuning {
 public:
  // files: the same model in one or more formats, the present one first.
  Tuning(TuneConstraints c, service::RuntimeOptions options, std::vector<std::string> files)
      : c_(std::move(c)), options_(std::move(options)), files_(std::move(files)) {}
  Status Search();

  const TuneSetting& chosen() const { return chosen_; }
  const std::string& chosen_file() const { return files_[chosen_.file]; }
  const TuneSetting& first() const { return first_; }
  const std::vector<std::string>& problems() const { return problems_; }  // constraints that are not met
  bool Searched(const std::string& knob) const;
  // Of what was chosen, against the best one; nothing without a floor.
  Result<std::optional<TuneQuality::Found>> Quality() { return QualityOf(chosen_); }
  Json Evidence() const;
  std::string Text() const;

 private:
  enum class Phase { kDecode, kPrefill, kRequest };
  struct Value {
    std::string name;
    TuneSetting setting;
  };
  struct Knob {
    std::string name;  // of kTuneKnobs
    std::string field, phase;
    lab::Elimination elimination;
    std::vector<std::string> refused;  // of each value, why it was not measured; empty: it was
    std::vector<std::optional<TuneQuality::Found>> quality;
    std::vector<std::optional<double>> ttft_ms, gap_ms;
    size_t chosen = 0;
    std::string because;
  };

  service::RuntimeOptions OptionsOf(const TuneSetting& s) const;
  Result<std::unique_ptr<Arm>> Load(const TuneSetting& s) const;
  Status CheckFiles() const;
  Status CheckMemory(const service::Runtime& runtime) const;
  Result<std::optional<TuneQuality::Found>> QualityOf(const TuneSetting& s);
  // Why it may not be chosen, whatever its speed; empty: it may.
  Result<std::string> WhyNot(const TuneSetting& s);
  Status FindStart();
  bool Wanted(const std::string& knob);
  Status SearchKnob(const std::string& name, const std::string& field, Phase phase, const std::vector<Value>& values,
                    size_t present);
  Status SearchFormat();
  Status SearchThreads();
  Status SearchChunk();
  Status SearchCache();
  Status SearchFlash();
  Status SearchSpeculation();
  Status Measure();

  TuneConstraints c_;
  service::RuntimeOptions options_;
  std::vector<std::string> files_;
  TuneSetting first_, chosen_;
  std::optional<TuneQuality> quality_;
  using Answers = std::tuple<size_t, backend::KvType, backend::KvType, bool>;  // the settings that decide them
  Answers best_;
  std::map<Answers, TuneQuality::Found> qualities_;
  std::vector<Knob> searched_;
  std::vector<std::pair<std::string, std::string>> left_;  // what is not searched, and why
  double step_s_ = 0, token_s_ = 0, slowest_step_s_ = 0;
  std::vector<std::string> problems_;
  lab::Verdict quiet_;
};

}  // namespace ridge::app
