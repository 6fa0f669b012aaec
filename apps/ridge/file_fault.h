// A model file that somebody cuts short or writes over while it is in use: its pages are gone, and the system sends SIGBUS to whoever reads them.
//
//   TellFileFaults(out);    // once, before the command runs
//
// Guarantees: the process then ends with one line that names the file, and status 1; with --json also with a document, unless there was one already.
// Any other SIGBUS ends it as always.
#pragma once

#include "command.h"

namespace ridge::app {

void TellFileFaults(const Output& out);  // borrowed for good

}  // namespace ridge::app
