// What a step reads from memory, and which part of it is one sequence's.
//
//   summary.bytes_read += bytes.Share(chunk_tokens, chunk_rows, chunk_begin, step_tokens, step_rows);
//
// Guarantees: weights are shared by the tokens of a step, the output matrix by its logit rows, KV and state are a sequence's own; the shares of a
// step sum to what it reads. Follows from shapes: nothing is measured, caches are not seen, nor is what a draft model reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace ridge::engine {

struct StepBytes {
  double weights = 0;    // of every step
  double per_token = 0;  // rows of embedding tables
  double experts = 0;    // all banks of experts; a token reads expert_share of them at most
  double expert_share = 0;
  double head = 0;                                  // of a step that gives logits
  double state = 0;                                 // recurrent state, of each sequence of a step
  std::vector<std::pair<int64_t, double>> kv = {};  // (window in tokens or 0, bytes of a token)

  void AddKv(int64_t window, double token_bytes) {
    const auto same = std::find_if(kv.begin(), kv.end(), [window](const auto& k) { return k.first == window; });
    if (same != kv.end()) {
      same->second += token_bytes;
    } else {
      kv.emplace_back(window, token_bytes);
    }
  }

  // Of a step of step_tokens > 0 tokens the part of a chunk [begin, begin + tokens).
  double Share(int64_t tokens, int64_t rows, int64_t begin, int64_t step_tokens, int64_t step_rows) const {
    const double all = static_cast<double>(step_tokens), part = static_cast<double>(tokens);
    double bytes = part / all * (weights + experts * std::min(1.0, all * expert_share)) + part * per_token + state;
    if (step_rows > 0) bytes += static_cast<double>(rows) / static_cast<double>(step_rows) * head;
    for (const auto& [window, token_bytes] : kv)
      bytes += token_bytes *
               static_cast<double>(window > 0 ? std::min(begin + tokens, window + tokens - 1) : begin + tokens);
    return bytes;
  }
};

}  // namespace ridge::engine
