// The memory plan of a model as `inspect --memory` shows it.
#pragma once

#include <string>

#include "command.h"
#include "service/runtime.h"

namespace ridge::app {

Json MemoryJson(const service::Runtime& runtime);
std::string MemoryText(const service::Runtime& runtime);

}  // namespace ridge::app
