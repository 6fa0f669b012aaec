#include "backend/backend.h"

namespace ridge::backend {

std::string_view Name(KvType type) {
  switch (type) {
    case KvType::kF16: return "f16";
    case KvType::kBF16: return "bf16";
    case KvType::kF32: return "f32";
    case KvType::kQ8_0: return "q8_0";
    case KvType::kQ4_0: return "q4_0";
  }
  return "?";
}

Result<KvType> ParseKvType(std::string_view name) {
  for (KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32, KvType::kQ8_0, KvType::kQ4_0}) {
    if (name == Name(type)) return type;
  }
  return Fail(Code::kInvalidArgument, "KV type is not one of this build")
      .Found(std::string(name))
      .Expected("f16, bf16, f32, q8_0 or q4_0");
}

double ValueBytes(KvType type) {
  switch (type) {
    case KvType::kF16:
    case KvType::kBF16: return 2;
    case KvType::kF32: return 4;
    case KvType::kQ8_0: return 34.0 / 32;
    case KvType::kQ4_0: return 18.0 / 32;
  }
  return 0;
}

}  // namespace ridge::backend
