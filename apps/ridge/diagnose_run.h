// The interventions of `ridge diagnose` on a model in this process: what is changed, in which order, and what the parts alone would answer.
//
//   DiagnoseRun run(options, {.prompt = 128, .gen = 64});
//   RIDGE_RETURN_IF_ERROR(run.Measure());
//   lab::Diagnose(run.evidence());   run.not_tried();
//
// Guarantees: a configuration that cannot be loaded is a line of not_tried() with the reason, never an error of the whole; a refusal of the base for want
// of memory is evidence of capacity.
#pragma once

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
};

struct NotTried {
  std::string intervention, reason;
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
  const Arm* base() const { return base_.get(); }  // nullptr: it was refused

 private:
  // A response (both phases) and, where `cause` is not empty, a lever: two of three pairs are the lever's.
  struct Change {
    std::string name, cause, action;
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
  Status Threads();
  Status Isa();
  Status Tokens();
  Status Context();
  Status PromptLength();
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
};

}  // namespace ridge::app
