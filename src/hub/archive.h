// Reads members of a zip archive (a Python wheel) as streams. Nothing is ever extracted under a name that the archive
// gives.
//
//   RIDGE_ASSIGN_OR_RETURN(Archive wheel, Archive::Open(path));
//   for (const Member& member : wheel.members()) ...
//   RIDGE_RETURN_IF_ERROR(wheel.Read(member, [&](std::span<const std::byte> bytes) { ... return Status(); }));
//
// Guarantees: the member list is bounded; Read passes exactly member.size_bytes bytes whose CRC is right, or fails. One
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace ridge::hub {

struct Member {
  uint64_t index = 0;
  std::string name;  // for matching and messages only
  uint64_t size_bytes = 0;
};

class Archive {
 public:
  // Errors: kInvalidData (no zip archive, too many members), kNotFound.
  static Result<Archive> Open(const std::string& path);
  Archive(Archive&&) noexcept;
  Archive& operator=(Archive&&) noexcept;
  ~Archive();

  const std::vector<Member>& members() const { return members_; }
  Status Read(const Member& member, const std::function<Status(std::span<const std::byte>)>& sink) const;
  // The whole member. Errors: kOutOfRange when it is longer than max_bytes.
  Result<std::string> ReadText(const Member& member, size_t max_bytes) const;

 private:
  struct State;
  Archive(std::unique_ptr<State> state, std::vector<Member> members);
  std::unique_ptr<State> state_;
  std::vector<Member> members_;
};

}  // namespace ridge::hub
