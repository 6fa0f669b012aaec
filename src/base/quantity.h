// Quantities as people read and write them.
//
//   Count(1, "token");            // "1 token";   Count(2, "token") is "2 tokens", Count(2, "query", "queries") "2 queries"
//   ParseByteSize("48MiB");       // 50331648
//
// Guarantees: a size has one grammar wherever one is asked for; what is no size is an error that leaves `where` to the caller.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ridge {

// plural: empty for the noun with an s.
template <std::integral Number>
std::string Count(Number n, std::string_view noun, std::string_view plural = "") {
  std::string out = std::to_string(n) + " ";
  if (n == 1) return out.append(noun);
  return plural.empty() ? out.append(noun) + "s" : out.append(plural);
}

// A number and a unit, in letters of any case: none or B: bytes; K, M, G, T and KiB, MiB, GiB, TiB: powers of 1024; KB, MB, GB, TB: powers of 1000.
// One space may stand between them. Errors: kUsage.
Result<uint64_t> ParseByteSize(std::string_view text);

}  // namespace ridge
