// Settings that `ridge tune` found for one model on one machine with one version, and what they were found with.
//
//   RIDGE_ASSIGN_OR_RETURN(const std::string path, Profile::StoredPath(identity));   // where tune leaves it and run, serve and bench look
//   RIDGE_ASSIGN_OR_RETURN(const Profile profile, Profile::Read(path));
//   RIDGE_RETURN_IF_ERROR(profile.Check(model_path));      // another machine, model or version: refused with the reason
//
// Guarantees: without a quality floor a profile holds only settings that leave the bits of every answer as they are; with one, those that do not say
// how often the next token was the same. What the command line says comes first, always.
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
  std::optional<std::string> k_type, v_type, flash_attention, speculation;  // as the flags spell them
  std::optional<double> same_top;  // of settings that change answers: how often the likeliest next token is the same

  // A file of the folder that ridge roofline uses too, named after this machine and the model; kNotFound where there is no such folder.
  static Result<std::string> StoredPath(const ModelIdentity& model);
  // The stored one, if there is one that is good for this model here; else nothing, with a line on stderr where there is one that is not.
  static std::optional<Profile> Stored(const std::string& model_path);

  static Result<Profile> Read(const std::string& path);
  Status Check(const std::string& model_path) const;
  bool changes_answers() const { return k_type || v_type || flash_attention; }
  // "-t 2 -ub 256"
  std::string Flags() const;
  // "profile PATH: -t 2 -ub 256, where the command line says nothing else"
  std::string Line() const;
};

// The document that Read takes, with the evidence beside the settings.
Json ProfileJson(const Profile& profile, Json evidence);

}  // namespace ridge::app
