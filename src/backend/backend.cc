#include "backend/backend.h"

namespace ridge::backend {

std::string_view Name(KvType type) {
  switch (type) {
    case KvType::kF16: return "f16";
    case KvType::kBF16: return "bf16";
    case KvType::kF32: return "f32";
  }
  return "?";
}

Result<KvType> ParseKvType(std::string_view name) {
  for (KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32}) {
    if (name == Name(type)) return type;
  }
  return Fail(Code::kInvalidArgument, "KV type is not one of this build")
      .Found(std::string(name))
      .Expected("f16, bf16 or f32");
}

size_t ValueBytes(KvType type) { return type == KvType::kF32 ? 4 : 2; }

}  // namespace ridge::backend
