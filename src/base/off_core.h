// Threads that the system has taken off their core while others wait for them: told from those that compute, and given another core.
//
//   const pid_t worker = ThisThread();                      // in the worker
//   if (IsOffCore(worker)) MoveTo(worker, ThisCore());      // in who waits for it and is about to sleep
//
// Why: a core that becomes idle takes over only threads that have not run of late, and one that was just put off has.
// Guarantee: the set of cores that a thread may use is smaller for microseconds only, then as it was. Where the system allows or tells nothing,
// nothing happens. Limit: the system cannot exchange a set at once, so a set that another program gives a thread between two of our calls is lost.
#pragma once

#include <sys/types.h>

namespace ridge {

pid_t ThisThread();
int ThisCore();  // -1 where the system does not tell

// Whether it takes no processor time during the few microseconds that this takes: it sleeps, or waits for a core.
bool IsOffCore(pid_t thread);

// To that core, or to its queue, if it may use it.
void MoveTo(pid_t thread, int core);
// The calling thread, to that core; from there to any other.
void LeaveFor(int core);

}  // namespace ridge
