// The tables of `ridge plan`. Shapes: config.json of each model at huggingface.co, under the repository that `source` names. Mixes: which tensors
// llama.cpp's quantizer gives more bits, as shares. Divergences: its tools/quantize/README.md. Tasks and runtimes: the course that the lab grew from.
#include "lab/planning/plan.h"

namespace ridge::lab {

const std::vector<Shape>& KnownShapes() {
  static const std::vector<Shape> shapes = {
      {"SmolLM2 135M", 576, 30, 9, 3, 64, 1536, 49152, true, 8192, 0, 0, 0, 0, 0, 0.1345,
       "HuggingFaceTB/SmolLM2-135M-Instruct"},
      {"SmolLM2 360M", 960, 32, 15, 5, 64, 2560, 49152, true, 8192, 0, 0, 0, 0, 0, 0.3618,
       "HuggingFaceTB/SmolLM2-360M-Instruct"},
      {"Qwen2.5 0.5B", 896, 24, 14, 2, 64, 4864, 151936, true, 32768, 0, 0, 0, 0, 0, 0.494,
       "Qwen/Qwen2.5-0.5B-Instruct"},
      {"Qwen3 0.6B", 1024, 28, 16, 8, 128, 3072, 151936, true, 40960, 0, 0, 0, 0, 0, 0.596, "Qwen/Qwen3-0.6B"},
      {"Gemma 3 1B", 1152, 26, 4, 1, 256, 6912, 262144, true, 32768, 0, 0, 0, 512, 6, 1.0, "google/gemma-3-1b-it"},
      {"Llama 3.2 1B", 2048, 16, 32, 8, 64, 8192, 128256, true, 131072, 0, 0, 0, 0, 0, 1.236,
       "meta-llama/Llama-3.2-1B-Instruct"},
      {"Qwen2.5 1.5B", 1536, 28, 12, 2, 128, 8960, 151936, true, 32768, 0, 0, 0, 0, 0, 1.544,
       "Qwen/Qwen2.5-1.5B-Instruct"},
      {"Qwen3 1.7B", 2048, 28, 16, 8, 128, 6144, 151936, true, 40960, 0, 0, 0, 0, 0, 1.72, "Qwen/Qwen3-1.7B"},
      {"Qwen2.5 3B", 2048, 36, 16, 2, 128, 11008, 151936, true, 32768, 0, 0, 0, 0, 0, 3.086,
       "Qwen/Qwen2.5-3B-Instruct"},
      {"Llama 3.2 3B", 3072, 28, 24, 8, 128, 8192, 128256, true, 131072, 0, 0, 0, 0, 0, 3.213,
       "meta-llama/Llama-3.2-3B-Instruct"},
      {"Gemma 3 4B", 2560, 34, 8, 4, 256, 10240, 262208, true, 131072, 0, 0, 0, 1024, 6, 3.88, "google/gemma-3-4b-it"},
      {"Qwen3 4B", 2560, 36, 32, 8, 128, 9728, 151936, true, 40960, 0, 0, 0, 0, 0, 4.022, "Qwen/Qwen3-4B"},
      {"Mistral 7B v0.3", 4096, 32, 32, 8, 128, 14336, 32768, false, 32768, 0, 0, 0, 0, 0, 7.248,
       "mistralai/Mistral-7B-Instruct-v0.3"},
      {"Qwen2.5 7B", 3584, 28, 28, 4, 128, 18944, 152064, false, 32768, 0, 0, 0, 0, 0, 7.616,
       "Qwen/Qwen2.5-7B-Instruct"},
      {"Llama 3.1 8B", 4096, 32, 32, 8, 128, 14336, 128256, false, 131072, 0, 0, 0, 0, 0, 8.03,
       "meta-llama/Llama-3.1-8B-Instruct"},
      {"Qwen3 8B", 4096, 36, 32, 8, 128, 12288, 151936, false, 40960, 0, 0, 0, 0, 0, 8.191, "Qwen/Qwen3-8B"},
      {"Gemma 3 12B", 3840, 48, 16, 8, 256, 15360, 262208, true, 131072, 0, 0, 0, 1024, 6, 11.77,
       "google/gemma-3-12b-it"},
      {"Qwen3 14B", 5120, 40, 40, 8, 128, 17408, 151936, false, 40960, 0, 0, 0, 0, 0, 14.768, "Qwen/Qwen3-14B"},
      {"Qwen3 30B A3B", 2048, 48, 32, 4, 128, 0, 151936, false, 40960, 128, 8, 768, 0, 0, 30.532, "Qwen/Qwen3-30B-A3B"},
      {"Qwen2.5 32B", 5120, 64, 40, 8, 128, 27648, 152064, false, 32768, 0, 0, 0, 0, 0, 32.764,
       "Qwen/Qwen2.5-32B-Instruct"},
      {"Llama 3.1 70B", 8192, 80, 64, 8, 128, 28672, 128256, false, 131072, 0, 0, 0, 0, 0, 70.554,
       "meta-llama/Llama-3.1-70B-Instruct"},
  };
  return shapes;
}

const std::vector<Mix>& KnownMixes() {
  static const std::vector<Mix> mixes = {
      {"F16", "F16", "F16", 0, false, "F16", "F16", 0},
      {"Q8_0", "Q8_0", "Q8_0", 0, false, "Q8_0", "Q8_0", 0.0014},
      {"Q6_K", "Q6_K", "Q6_K", 0, false, "Q6_K", "Q6_K", 0.0055},
      {"Q5_K_M", "Q5_K", "Q6_K", 0.5, false, "Q6_K", "Q5_K", 0.0108},
      {"Q4_K_M", "Q4_K", "Q6_K", 0.5, false, "Q6_K", "Q4_K", 0.0282},
      {"IQ4_XS", "IQ4_XS", "Q5_K", 0.125, false, "Q6_K", "IQ4_XS", 0.0363},
      {"Q3_K_M", "Q3_K", "Q4_K", 1, true, "Q6_K", "Q3_K", 0.0844},
      {"IQ3_XXS", "IQ3_XXS", "Q4_K", 0.125, false, "Q5_K", "IQ3_S", 0.184},
      {"Q2_K", "Q2_K", "Q3_K", 1, true, "Q6_K", "Q2_K", 0.332},
      {"IQ2_XXS", "IQ2_XXS", "Q2_K", 0.125, false, "Q5_K", "Q2_K", 0.812},
  };
  return mixes;
}

const std::vector<TaskRule>& TaskRules() {
  static const std::vector<TaskRule> rules = {
      {"chat", "Q4_K_M", "f16", 0, "a general instruct model",
       "quality first: following instructions, facts, long conversations; Q4_K_M loses little"},
      {"code", "Q5_K_M", "f16", 0, "a model trained for code",
       "syntax is exact and contexts are long: few bits hurt code more than talk"},
      {"extraction", "IQ3_XXS", "f16", 8, "a small instruct model",
       "short answers, so few bits and a small model usually suffice"},
      {"math", "Q6_K", "f16", 0, "a model trained to reason",
       "long chains in which one wrong token is enough: quantization shows first here"},
      {"rag", "Q4_K_M", "q8_0", 0, "a model with a long context",
       "the KV cache grows with the documents: keep it in 8 bits, keys suffer more than values"},
      {"agent", "Q6_K", "f16", 0, "a model with native tool calls",
       "structured output has to stay stable over many turns"},
      {"edge", "IQ4_XS", "q8_0", 8, "a compact model of 1 to 8 billion", "little memory, low latency, no network"},
  };
  return rules;
}

const TaskRule* FindTask(std::string_view task) {
  for (const TaskRule& rule : TaskRules()) {
    if (rule.task == task) return &rule;
  }
  return nullptr;
}

const std::vector<RuntimeRule>& RuntimeRules() {
  static const std::vector<RuntimeRule> rules = {
      {"single", "ridge run or ridge serve -np 1, llama.cpp, Ollama",
       "one stream is bound by reading the weights: what counts is the kernels' bandwidth, not the scheduler"},
      {"edge", "ridge, llama.cpp", "no dependencies, all GGUF types, and memory that is planned before it is taken"},
      {"concurrent", "ridge serve on a CPU; vLLM where there is a GPU",
       "continuous batching reads the weights once for all requests; paged KV keeps many of them in memory"},
      {"batch", "ridge serve with many requests at once on a CPU; vLLM or SGLang where there is a GPU",
       "nobody waits, so many sequences at once: each reading of the weights serves all of them"},
      {"agents", "ridge serve with its prefix cache on a CPU; SGLang where there is a GPU",
       "turns and system prompts share their beginnings: what is cached is not computed again"},
  };
  return rules;
}

}  // namespace ridge::lab
