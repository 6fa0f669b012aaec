// What options that several commands share say in --help.
//
//   app->add_option("-t,--threads", threads, help::kThreads);
//
// Guarantees: one text for an option that means the same wherever it stands; tests/python/command_line_test.py holds the commands against each other.
#pragma once

namespace ridge::app::help {

inline constexpr const char* kThreads =
    "compute threads (0 or not given: as many as physical cores that this process may use, or fewer where a short "
    "probe shows that to be faster)";
inline constexpr const char* kIsa = "force the kernels of one instruction set: see ridge doctor (default: the best)";
inline constexpr const char* kContext =
    "context in tokens, prompt and output together; 0: what the model was trained for (default: that, at most 4096)";
inline constexpr const char* kParallel = "sequences that run at once; more wait";
inline constexpr const char* kBatch = "most prompt tokens handed over at once; an upper limit of -ub";
inline constexpr const char* kChunk = "prompt tokens of one step, the prompt chunk";
inline constexpr const char* kKvPage = "tokens of one KV page";
inline constexpr const char* kKType = "type of the K cache: f16, bf16, f32, q8_0 or q4_0";
inline constexpr const char* kVType = "type of the V cache, chosen independently: f16, bf16, f32, q8_0 or q4_0";
inline constexpr const char* kKvMemory =
    "size of the KV pool, such as 512MiB (default: room for -np requests of -c tokens, or less where memory is short)";
inline constexpr const char* kFlashAttention =
    "auto, on (as -fa alone), or off: all scores before one softmax, slower and with other bits (an experiment)";
inline constexpr const char* kGpuLayers =
    "accepted and resolved to 0, with the reason: this build computes on the CPU only";
inline constexpr const char* kPanelCache =
    "keep repacked weights in this folder and load them from there: nothing is written without it";
inline constexpr const char* kMatMul =
    "native, or blas: OpenBLAS where 32 tokens or more are computed at once, an experiment variable that is not "
    "bit-stable";
inline constexpr const char* kStrict = "an op without a fast kernel, and a setting that cannot be kept, are errors";
inline constexpr const char* kOpTrace =
    "time every op of one step in so many and put the times into the JSON document (0: of none); the steps stay the "
    "same to the bit";

// Defaults that the runtime resolves, as --help shows them.
inline constexpr const char* kBatchDefault = "2048";
inline constexpr const char* kChunkDefault = "512";

}  // namespace ridge::app::help
