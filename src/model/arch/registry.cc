// The families of this build: one file and one line each.
#include "model/arch/families.h"

namespace ridge::model {
namespace {

constexpr Family kFamilies[] = {
    {"llama", WriteLlama},
    {"qwen2", WriteQwen2},
    {"qwen3", WriteQwen3},
    {"qwen3moe", WriteQwen3Moe},
    {"gemma3", WriteGemma3},
    {"qwen35", WriteQwen35},
    {"bert", WriteBert, /*encoder=*/true},
};

}  // namespace

const Family* FindFamily(const std::string& architecture) {
  for (const Family& family : kFamilies) {
    if (architecture == family.architecture) return &family;
  }
  return nullptr;
}

std::vector<std::string> FamilyNames() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.architecture);
  return names;
}

}  // namespace ridge::model
