#include "quant/quant.h"

#include <algorithm>

#include "base/result.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool EqualFold(std::string_view a, std::string_view b) { return std::ranges::equal(a, b, {}, Lower, Lower); }

}  // namespace

std::span<const Type> Types() {
#define RIDGE_QUANT_ENTRY(name) kType##name,
  static const Type kTypes[] = {RIDGE_QUANT_TYPES(RIDGE_QUANT_ENTRY)};
#undef RIDGE_QUANT_ENTRY
  return kTypes;
}

const Type* Find(uint32_t id) {
  for (const Type& type : Types()) {
    if (static_cast<uint32_t>(type.id) == id) return &type;
  }
  return nullptr;
}

const Type* Find(std::string_view name) {
  for (const Type& type : Types()) {
    if (EqualFold(type.name, name)) return &type;
  }
  return nullptr;
}

const Type& Get(TypeId id) {
  const Type* type = Find(static_cast<uint32_t>(id));
  RIDGE_CHECK(type != nullptr);
  return *type;
}

}  // namespace ridge::quant
