// What a user may write for MODEL when it is not a path: a short name, or a source to pull from.
//
//   RIDGE_ASSIGN_OR_RETURN(Reference reference, ParseReference("hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M"));
//   reference.repo == "Qwen2.5-0.5B-Instruct-GGUF"; reference.quant == "Q4_K_M"
//
// Guarantees: every part of a parsed Reference is made of characters that are safe in a URL and on a command line,
// holds no "." or ".." segment and does not begin with "-". Canonical() parses back to an equal Reference and is the
// name under which the store keeps it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace ridge::hub {

enum class Scheme { kName, kHuggingFace, kOllama, kPypi };

struct Reference {
  Scheme scheme = Scheme::kName;
  std::string owner;    // hf, ollama ("library" when not given)
  std::string repo;     // hf, ollama; the family of a short name ("smollm2")
  std::string tag;      // ollama ("latest" when not given); of a short name ("135m"), empty when not given
  std::string quant;    // hf, may be empty; never together with file
  std::string file;     // hf, path inside the repository, may be empty
  std::string package;  // pypi
  std::string version;  // pypi, may be empty

  std::string Canonical() const;
  bool operator==(const Reference&) const = default;
};

// Forms: NAME[:TAG], hf:OWNER/REPO[:QUANT|/FILE], ollama:[NAMESPACE/]NAME[:TAG], pypi:PACKAGE[==VERSION].
// Errors: kInvalidArgument, with the form expected.
Result<Reference> ParseReference(std::string_view text);

// True for text with a known scheme before a colon ("hf:", "ollama:", "pypi:").
bool HasScheme(std::string_view text);

// True for the path of a GGUF file inside a repository: segments without "." and "..", no backslash, no control
// characters.
bool IsRepositoryPath(std::string_view text);

}  // namespace ridge::hub
