// The subcommands of ridge: one file and one line each.
#pragma once

#include "command.h"

namespace ridge::app {

using AddCommand = void (*)(CLI::App& root, Invocation& invocation);

inline constexpr AddCommand kCommands[] = {
    nullptr,
};

}  // namespace ridge::app
