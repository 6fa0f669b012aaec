// Ready-made experiments: the matrix of the course (offload, context, format, threads, command line against server, power mode), what Ridge adds to it,
// and the course's homework. Each is an experiment's file, written for this device.
//
//   for (const Ready& r : ReadyMade()) print(r.name, r.about);
//   RIDGE_ASSIGN_OR_RETURN(std::string toml, WriteReady("threads", {.models = {"smollm2:135m"}}, Device::This()));
//
// Guarantees: what the file says is all that is run. A value that this device cannot run stands in its [not_run] with the reason; the file is the same
// each time on the same device.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ridge::lab {

struct Ready {
  std::string name;
  std::string question, question_zh;
  std::string varies;     // "-t 1, 2, … all cores"
  bool own_only = false;  // llama.cpp's programs have no such setting
  int models = 1;         // at least
  std::string like;       // homework: the experiment that answers it
};
const std::vector<Ready>& ReadyMade();
const Ready* FindReady(std::string_view name);  // nullptr: there is none

// What an experiment may need and a device may lack.
struct Device {
  int cpus = 1;
  std::map<std::string, std::string> isas;  // name -> why it cannot run here; empty: it can
  std::vector<std::string> power_modes;
  std::string no_power_modes;  // why there are none
  std::string no_gpu;          // empty: there is a driver
  std::string no_blas;         // empty: it can be loaded

  static Device This(const std::string& root = "");
};

struct ReadyOptions {
  std::vector<std::string> models;
  std::string peer;    // a folder of llama.cpp's programs, which are run instead of this one
  std::string url;     // a server that runs already, where the experiment is about one
  int64_t blocks = 6;  // 4 are needed for a verdict; two may be disturbed
  bool quality = true;
};
// Errors: kUsage (a model is missing, or the peer has no such setting).
Result<std::string> WriteReady(std::string_view name, const ReadyOptions& options, const Device& device);

}  // namespace ridge::lab
