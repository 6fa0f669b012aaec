// The interventions of `ridge diagnose` on a model in this process: what is changed, in which order, and what the parts alone would answer.
//
//   DiagnoseRun run(options, {.prompt = 128, .gen = 64});
//   RIDGE_RETURN_IF_ERROR(run.Measure());
//   lab::Diagnose(run.evidence());   run.not_tried();
//
// Guarantees: a configuration that cannot be loaded is a line of not_tried() with the reason, never an error of the whole; a refusal of the base for want
// of memory is evidence of capacity.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ceilings.h"
#include "diagnose_arm.h"
#include "lab/diagnose/diagnose.h"
#include "lab/diagnose/interventions.h"

namespace ridge::app {

struct DiagnoseWork {
  int64_t prompt = 128, gen = 64, blocks = 4;
  bool threads_asked = false;
  double most_s = 120;  // that all changes may take: what would take longer is left out, and named
};

struct NotTried {
  std::string intervention, reason;
};
struct Shortened {
  std::string what, reason;
};

class DiagnoseRun {
 public:
  DiagnoseRun(service::RuntimeOptions options, DiagnoseWork work) : options_(std::move(options)), work_(work) {}
  Status Measure();

  lab::Evidence& evidence() { return evidence_; }
  const std::vector<NotTried>& not_tried() const { return not_tried_; }
  void Skip(std::string intervention, std::string reason) {
    not_tried_.push_back({std::move(intervention), std::move(reason)});
  }
  // What was measured on less than was asked about, because this machine and these settings are slow.
  const std::vector<Shortened>& shortened() const { return shortened_; }
  const Arm* base() const { return base_.get(); }  // nullptr: it was refused

 private:
  // A response (both phases) and, where `cause` is not empty, a lever: two of three pairs are the lever's.
  struct Change {
    std::string name, cause, action;
    double cost = 1;  // time of the changed configuration over the base's, about
    lab::Factors decode = {1, 1, 1, 1, 1}, prefill = {1, 1, 1, 1, 1}, doubt = {0.05, 0.05, 0.05, 0.15, 0.05};
    bool decodes = true, prefills = true;
  };
  Status LoadBase();
  Status Try(Change change, Arm& with, const std::function<void(bool)>& before = {});
  struct Compared {
    lab::Factors factors, doubt;  // medians, and how far apart they were found
  };
  Result<Compared> Compare(const lab::Condition& with, lab::Antagonist* antagonist = nullptr);
  void Limits(double step_s, double token_s);
  Status Guarded(const std::string& name, const std::function<Status()>& fn);
  bool HasRoom(const std::string& name);
  double SampleSeconds() const;  // one sample of the base
  double SecondsLeft() const;
  // Whether `blocks` blocks against a configuration that takes `factor` times as long, and loading it, fit into the time that is left; else a line of not_tried().
  bool HasTime(const std::string& name, int64_t blocks, double factor);
  Status Threads();
  Status Isa();
  Status Tokens();
  Status Context();
  Status PromptLength();
  bool ChunkCanGrow() const;
  Status Chunk();
  Status Layers();
  Status Bandwidth();
  Status Power();
  lab::Work DecodeWork(double sequences) const;
  lab::Condition BaseCondition() const;

  service::RuntimeOptions options_;
  DiagnoseWork work_;
  std::unique_ptr<Arm> base_;
  std::unique_ptr<Arm> half_;  // half the threads, for the antagonist too
  std::unique_ptr<lab::PartRates> rates_;
  lab::Machine machine_;
  std::vector<lab::Rates> base_rates_;
  lab::Evidence evidence_;
  std::vector<NotTried> not_tried_;
  std::vector<Shortened> shortened_;
  std::chrono::steady_clock::time_point begin_;
  double step_s_ = 0, token_s_ = 0, load_s_ = 0;  // of the base, as far as they are needed to plan
};

}  // namespace ridge::app
