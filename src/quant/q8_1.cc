// Q8_1: activations of ggml's dot products. Listed for its size (ggml's: the `gguf` package says 40 bytes); no file
// holds weights in it.
#include "quant/blocks.h"
#include "quant/types.h"

namespace ridge::quant {

constinit const Type kTypeQ8_1 = {TypeId::kQ8_1, "Q8_1", BlockQ8_1::kElements, sizeof(BlockQ8_1), nullptr, nullptr};

}  // namespace ridge::quant
