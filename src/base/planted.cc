#include "base/planted.h"

#include <charconv>
#include <chrono>
#include <thread>

namespace ridge {
namespace planted {
namespace {
double ms = 0;
}  // namespace
void Sleep() { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }
}  // namespace planted

std::string_view Name(Stage stage) {
  switch (stage) {
    case Stage::kNone: return "none";
    case Stage::kReceive: return "receive";
    case Stage::kTokenize: return "tokenize";
    case Stage::kQueue: return "queue";
    case Stage::kPrefill: return "prefill";
    case Stage::kDecode: return "decode";
    case Stage::kSample: return "sample";
    case Stage::kDetokenize: return "detokenize";
    case Stage::kDeliver: return "deliver";
    case Stage::kWrite: return "write";
  }
  return "?";
}

Status Plant(const std::string& what, std::span<const Stage> stages) {
  const size_t equals = what.find('=');
  std::string names;
  for (const Stage stage : stages) {
    names += (names.empty() ? "" : ", ") + std::string(Name(stage));
    if (equals == std::string::npos || what.substr(0, equals) != Name(stage)) continue;
    double ms = 0;
    const char* end = what.data() + what.size();
    const auto [at, error] = std::from_chars(what.data() + equals + 1, end, ms);
    if (error != std::errc() || at != end || !(ms > 0 && ms <= 10000)) continue;
    planted::stage = stage;
    planted::ms = ms;
    return {};
  }
  return Fail(Code::kUsage, "nothing can be planted so")
      .Where("--plant-sleep")
      .Found(what)
      .Expected("STAGE=MS, above 0 to 10000 ms, of " + names);
}

}  // namespace ridge
