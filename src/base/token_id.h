// TokenId: the number of one entry of a model's vocabulary, 0 to vocab_size - 1. Negative values stand for "none".
#pragma once

#include <cstdint>

namespace ridge {

using TokenId = int32_t;

}  // namespace ridge
