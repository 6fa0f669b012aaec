// Reads the Config that all families share. Errors name the key, what it holds and what is possible.
#pragma once

#include "model/model.h"

namespace ridge::model {

Result<Config> ReadConfig(const gguf::File& file, const std::string& architecture);

}  // namespace ridge::model
