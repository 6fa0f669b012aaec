// Files of a folder of evidence, which may come from anyone.
//
//   RIDGE_ASSIGN_OR_RETURN(std::string text, ReadBeneath("threads.lab", "runs/0003.json"));
//   RIDGE_ASSIGN_OR_RETURN(Listing all, ListBeneath("threads.lab"));
//
// Guarantees: nothing outside the folder is read: a link on the way, a device, a pipe, a name with "..", a file beyond the limit are errors that say so. No read
// blocks. A name in a manifest is one line of printable text whatever the file is called.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ridge::lab {

inline constexpr uint64_t kMostFileBytes = uint64_t{512} << 20;  // of one file of evidence

// Errors: kNotFound, kPermissionDenied, kInvalidData (a link, no regular file, changed while it was read), kOutOfRange (too long).
Result<std::string> ReadBeneath(const std::string& folder, const std::string& name,
                                uint64_t most_bytes = kMostFileBytes);
bool ExistsBeneath(const std::string& folder, const std::string& name);  // a regular file, reached without links

// Whole or not at all. The folder is the caller's own.
Status WriteWhole(const std::string& path, std::string_view text);

struct Listing {
  std::vector<std::string> files;   // relative, sorted
  std::vector<std::string> others;  // links, devices, pipes, sockets
  std::vector<std::string> empty;   // folders with nothing in them
};
// Errors: kUnavailable, kOutOfRange (more than 100000 entries, or folders in folders 16 deep).
Result<Listing> ListBeneath(const std::string& folder);

std::string HashText(std::string_view text);       // XXH3-64, 16 hex digits
std::string QuoteName(std::string_view name);      // control characters, %, blanks and broken UTF-8 as %XX
std::string UnquoteName(std::string_view quoted);  // back

}  // namespace ridge::lab
