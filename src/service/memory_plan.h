// What a model takes in memory at given settings, known before a weight is read.
//
//   RIDGE_ASSIGN_OR_RETURN(auto planned, Runtime::Load({.path = path, .dry_run = true}));
//   planned->memory().peak_bytes;   planned->memory().kv_tokens;
//
// Guarantees: sizes of weights, pages and workspace are those that loading reserves, since the same code computes them. peak_bytes is an upper
// bound of the process's own memory once every page of the pool was used; mapped_bytes, the model file's pages, may leave memory at any time.
#pragma once

#include <cstdint>
#include <string>

namespace ridge::service {

struct MemoryPlan {
  uint64_t weights_bytes = 0;    // as the backend lays them out
  uint64_t mapped_bytes = 0;     // tensors that stay in the file, such as a table of embeddings
  uint64_t workspace_bytes = 0;  // of a step
  uint64_t logits_bytes = 0;
  uint64_t kv_page_bytes = 0, kv_bytes = 0;
  int64_t page_tokens = 0, kv_pages = 0, kv_tokens = 0;
  int64_t full_requests = 0;      // requests of the whole context that the pool holds at once
  uint64_t state_slot_bytes = 0;  // of a recurrent model: one sequence's state
  int64_t state_slots = 0;        // of running sequences and of checkpoints
  int64_t checkpoints = 0;        // from which the prefix cache can go on
  int64_t draft_slots = 0;        // for the states on the way through drafts
  uint64_t scratch_bytes = 0;     // of attention that is spread over threads
  uint64_t other_bytes = 0;       // vocabulary, threads, the program itself: an estimate
  // Of a draft model: weights and all that a step of it needs; and its KV, as many pages of as many tokens.
  uint64_t draft_bytes = 0, draft_kv_bytes = 0;
  uint64_t peak_bytes = 0;     // all but mapped_bytes
  uint64_t allowed_bytes = 0;  // 0: unknown
  std::string allowed_reason, pages_reason;

  bool fits_memory() const { return allowed_bytes == 0 || peak_bytes <= allowed_bytes; }
  bool holds_a_request() const { return full_requests > 0; }  // of the whole context
};

}  // namespace ridge::service
