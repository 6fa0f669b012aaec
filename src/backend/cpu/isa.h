// Which kernel tables this binary has and which of them the processor can run.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/kernels/kernels.h"
#include "base/result.h"

namespace ridge::cpu {

// The best table that the CPU runs, or the one named. Errors: kInvalidArgument for an unknown name, kUnsupported for one the CPU lacks.
Result<const Kernels*> SelectKernels(const std::string& isa);

// All tables of this binary, whether or not the CPU can run them: to be looked at, not called.
std::vector<const Kernels*> AllKernels();

}  // namespace ridge::cpu
