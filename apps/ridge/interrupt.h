// Ctrl-C and SIGTERM while a command runs.
//
//   Interrupt interrupt(out.json);   // at once: "error: interrupted" (with --json: its document too) and status 1
//   interrupt.EndInOrder();          // from here on a signal is no error: a line says so, status 0
//   interrupt.Count();               // from here on signals are counted: Ctrl-C as one, SIGTERM as two; the fourth ends at once
//   if (interrupt.count() > 0) ...
//
// Guarantees: system calls are interrupted (EINTR), so that a read of the terminal ends; the destructor puts the old handlers back. One at a time.
#pragma once

#include <csignal>

namespace ridge::app {

class Interrupt {
 public:
  explicit Interrupt(bool json);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  void EndInOrder();
  void Count();
  int count() const;
  void Reset();

 private:
  struct sigaction old_int_ = {}, old_term_ = {};
};

}  // namespace ridge::app
