// What HTTP adds to the engine's time: requests one after the other, each held against what the server says that its engine took.
//
//   RIDGE_ASSIGN_OR_RETURN(const ServiceTimes times, MeasureService({.url = url, .prompt_tokens = 128, .max_tokens = 64}));
//   evidence.service_shares = times.service;   // 1 - engine / client, one per request
//
// Guarantee: where the server tells no times of its own (neither Ridge's `ridge` nor llama-server's `timings`) and none are given, nothing is assumed: an error.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace ridge::app {

struct ServiceWork {
  std::string url, model, api_key;
  int64_t prompt_tokens = 64, max_tokens = 32, requests = 12;
  double client_delay_s = 0;
  std::optional<double> engine_s = {};  // of such a request, measured in this process, for a server that tells nothing
};

struct ServiceTimes {
  std::string engine_from;
  std::vector<double> total_s, engine_s, ttft_s, service, client;
};

Result<ServiceTimes> MeasureService(const ServiceWork& work);

}  // namespace ridge::app
