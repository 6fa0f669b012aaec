// What memory is built in, as the firmware's table tells: "2 x 16 GiB DDR5 4800 MT/s".
//
//   const std::string modules = MemoryModules(bytes_of("/sys/firmware/dmi/tables/DMI"));   // root may read it
//
// Guarantees: empty where the table is none, is cut short or names no module; no byte beyond the text is read.
#pragma once

#include <string>
#include <string_view>

namespace ridge::lab {

std::string MemoryModules(std::string_view smbios);

}  // namespace ridge::lab
