// Finds and fetches models: what every command that takes MODEL calls.
//
//   RIDGE_ASSIGN_OR_RETURN(std::string path, hub::ResolveModel("smollm2:135m"));  // in the store, or an error with the remedy
//   RIDGE_ASSIGN_OR_RETURN(std::string path, hub::ResolveModel("hf:Qwen/Qwen3-0.6B-GGUF", {.pull = true, .options = options}));
//
// Guarantees: an existing path is returned as it is. A name or a reference is looked up in the local store; no network
// is touched unless `pull` is set. What is returned was verified against the digest that its source published. Nothing
// is printed: progress and notices go to the callbacks, on the calling thread. Thread-safe; processes that pull the
// same model wait for one another.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/store.h"

namespace ridge::hub {

struct Progress {
  std::string_view label;         // what is being fetched
  uint64_t done_bytes = 0;        // over all files of the model
  uint64_t total_bytes = 0;       // 0: not known yet
  double bytes_per_second = 0;    // of late; 0: not known yet
  double remaining_seconds = -1;  // below 0: not known yet
};

// Where the sources are and how patient to be. FromEnvironment reads the variables named here.
struct Network {
  std::string hf_endpoint = "https://huggingface.co";          // HF_ENDPOINT
  std::string hf_token;                                        // HF_TOKEN; sent to the endpoint's host only
  std::string ollama_registry = "https://registry.ollama.ai";  // RIDGE_OLLAMA_REGISTRY
  std::string pip = "python3 -m pip";                          // RIDGE_PIP; words separated by spaces
  int connect_seconds = 5;                                     // RIDGE_CONNECT_TIMEOUT
  int stall_seconds = 30;  // RIDGE_STALL_TIMEOUT: no byte for so long ends an attempt
  int retries = 5;         // RIDGE_RETRIES: attempts after a failed one, in a row, without a byte
  static Network FromEnvironment();
};

struct PullOptions {
  std::string store_root;  // empty: DefaultStoreRoot()
  bool force = false;      // fetch again although the store has it
  std::function<void(const Progress&)> progress;
  std::function<void(const std::string&)>
      notice;                                 // one line for people: next source, retry, waiting for another process
  const std::atomic<bool>* cancel = nullptr;  // set by a signal handler; checked several times a second
  Network network = Network::FromEnvironment();
};

struct ResolveOptions {
  bool pull = false;  // fetch what is not in the store
  PullOptions options = {};
};

// Path of a GGUF file (the first shard of a split model). Errors: kNotFound with `ridge pull ...` as the remedy,
// kInvalidArgument, kInvalidData (damaged in the store), and those of Pull.
Result<std::string> ResolveModel(const std::string& model, const ResolveOptions& options = {});

// The entry of the store that MODEL means: a canonical name. kNotFound when it is not there.
Result<Entry> FindInStore(const Store& store, const std::string& model);

// Fetches a short name or a reference into the store, unless it is there. Errors: kUnavailable (network), kNotFound (no
// such model), kPermissionDenied (gated), kInvalidData (wrong digest, not a GGUF), kResourceExhausted (disk full),
// kCancelled; all but kInvalidData keep what came, and the next Pull goes on from there.
Result<Entry> Pull(const std::string& model, const PullOptions& options);

}  // namespace ridge::hub
