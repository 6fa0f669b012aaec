// Result<T> and Error, which every fallible function of Ridge returns. Installed, this file is src/base/result.h itself.
#pragma once

#include "base/result.h"
