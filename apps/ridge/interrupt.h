// Ctrl-C and SIGTERM while a command runs.
//
//   Interrupt interrupt;             // at once: "error: interrupted" and status 1
//   interrupt.Count();               // from here on signals are only counted
//   if (interrupt.count() > 0) ...
//
// Guarantees: system calls are interrupted (EINTR), so that a read of the terminal ends; the destructor puts the old handlers back. One at a time.
#pragma once

#include <csignal>

namespace ridge::app {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  void Count();
  int count() const;
  void Reset();

 private:
  struct sigaction old_int_ = {}, old_term_ = {};
};

}  // namespace ridge::app
