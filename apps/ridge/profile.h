// Settings that `ridge tune` found for one model on one machine with one version, and what they were found with.
//
//   RIDGE_ASSIGN_OR_RETURN(const Profile profile, Profile::Read("smollm2.profile.json"));
//   RIDGE_RETURN_IF_ERROR(profile.Check(model_path));      // another machine, model or version: refused with the reason
//
// Guarantee: a profile holds only settings that leave the bits of every answer as they are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "command.h"

namespace ridge::app {

struct ModelIdentity {
  uint64_t size_bytes = 0;
  std::string hash;  // XXH3 of the size, the first and the last MiB
};
Result<ModelIdentity> IdentityOf(const std::string& path);

struct Profile {
  std::string path, fingerprint, version;
  ModelIdentity model;
  std::optional<int> threads;
  std::optional<int64_t> chunk_tokens;

  static Result<Profile> Read(const std::string& path);
  Status Check(const std::string& model_path) const;
  // "-t 2 -ub 256"
  std::string Flags() const;
};

// The document that Read takes, with the evidence beside the settings.
Json ProfileJson(const Profile& profile, Json evidence);

}  // namespace ridge::app
