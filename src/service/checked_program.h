// A program whose weights lie partly in a mapped file: what a step read from it counts only if the file is still whole when the step has ended.
//
//   program = CheckedProgram(std::move(program), file);
//
// Why: of a file that is cut in the middle of a page the rest of that page reads as zeroes, without a signal. One system call a step and file.
// Guarantees: a step that succeeds read what the file held when it was opened. All else is the program's own.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "gguf/gguf.h"

namespace ridge::service {

// file is borrowed.
std::unique_ptr<backend::Program> CheckedProgram(std::unique_ptr<backend::Program> program, const gguf::File& file);

}  // namespace ridge::service
