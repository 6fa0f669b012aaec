// When the bytes that wait in a TCP socket came to this machine, by the kernel's stamp: earlier than they are read where the reading thread had other work or no processor.
//
//   StampArrivals(listener);                              // once; sockets that it accepts inherit it
//   const auto at = ArrivalOf(connection);                // bytes wait; none is taken
//
// Guarantee: never later than now, and now where the kernel tells nothing that can be: no stamp, one from the future, or one that is older than a minute (the clock was set).
#pragma once

#include <chrono>

namespace ridge::server {

void StampArrivals(int socket);
std::chrono::steady_clock::time_point ArrivalOf(int socket);

}  // namespace ridge::server
