#include "interrupt.h"

#include <unistd.h>

namespace ridge::app {
namespace {

volatile std::sig_atomic_t g_signals = 0;  // a signal handler has no other way to speak
volatile std::sig_atomic_t g_counting = 0;

volatile std::sig_atomic_t g_in_order = 0;
volatile std::sig_atomic_t g_json = 0;

constexpr int kPatience =
    4;  // what is counted is looked at after the present step; whoever insists need not wait for it

void Handle(int signal) {
  if (g_counting != 0) {
    g_signals = g_signals + (signal == SIGTERM ? 2 : 1);
    if (g_signals < kPatience) return;
  }
  if (g_in_order != 0) {
    constexpr char kEnded[] = "ridge: ended before the model was loaded\n";
    _exit(write(STDERR_FILENO, kEnded, sizeof(kEnded) - 1) < 0 ? 1 : 0);
  }
  constexpr char kLine[] = "error: interrupted\n";
  constexpr char kDocument[] =
      "{\"error\": {\"code\": \"cancelled\", \"what\": \"interrupted\", \"where\": \"\", \"found\": \"\", "
      "\"expected\": \"\", \"remedy\": \"\"}}\n";
  if (write(STDERR_FILENO, kLine, sizeof(kLine) - 1) < 0) _exit(1);
  if (g_json != 0 && write(STDOUT_FILENO, kDocument, sizeof(kDocument) - 1) < 0) _exit(1);
  _exit(1);
}

}  // namespace

Interrupt::Interrupt(bool json) {
  g_json = json;
  g_counting = 0;
  g_in_order = 0;
  g_signals = 0;
  struct sigaction action = {};
  action.sa_handler = Handle;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
}

void Interrupt::EndInOrder() { g_in_order = 1; }
void Interrupt::Count() { g_counting = 1; }
int Interrupt::count() const { return g_signals; }
void Interrupt::Reset() { g_signals = 0; }

}  // namespace ridge::app
