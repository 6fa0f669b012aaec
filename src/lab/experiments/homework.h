// The course's seven questions, answered from what an experiment measured and from logs recorded elsewhere.
//
//   std::string text = AnswerHomework({.number = 7, .experiment = &e, .findings = Analyse(e, samples), .arms = arms});
//
// Guarantees: every figure comes from the experiment's runs or from the log; what was not run stands there with its reason, in place of an answer.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/experiments/experiment.h"
#include "lab/monitor/recorded.h"

namespace ridge::lab {

struct Homework {
  int number = 0;
  const Experiment* experiment = nullptr;
  std::vector<Finding> findings;
  std::map<size_t, RunOutput> arms;  // one run of each arm that answers or measures
  // The highest bandwidth that a run of the arm found this machine to read with: a ceiling is what was reached once.
  std::map<size_t, double> ceiling_gbps;
  std::string hardware;
  std::optional<Recorded> recorded;
  std::string recorded_name;
};

// 0: the experiment is no homework.
int HomeworkNumber(const Experiment& e);
std::string AnswerHomework(const Homework& homework);

}  // namespace ridge::lab
