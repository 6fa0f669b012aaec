// What saved KV pages of a runtime depend on, beside their tokens: the model's bytes and what changes bits.
//
//   engine->SaveCache(path, CacheKeyOf(runtime));
//
// Guarantees: runtimes with equal keys, and equal options of their state, compute equal pages. Reads the whole model file.
#pragma once

#include "engine/cache_file.h"
#include "service/runtime.h"

namespace ridge::service {

engine::CacheKey CacheKeyOf(const Runtime& runtime);

}  // namespace ridge::service
