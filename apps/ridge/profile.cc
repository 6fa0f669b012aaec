#include "profile.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <fstream>

#include "base/json_text.h"
#include "base/read_file.h"
#include "ceilings.h"
#include "lab/machine.h"

namespace ridge::app {
namespace {

constexpr const char* kKind = "ridge profile";
constexpr std::streamoff kPart = 1 << 20;

}  // namespace

Result<ModelIdentity> IdentityOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Fail(Code::kNotFound, "cannot open the model").Where(path);
  const std::streamoff size = file.tellg(), part = std::min(size, kPart);
  std::string bytes(static_cast<size_t>(2 * part), '\0');
  file.seekg(0);
  file.read(bytes.data(), part);
  file.seekg(size - part);
  file.read(bytes.data() + part, part);
  if (!file) return Fail(Code::kUnavailable, "cannot read the model").Where(path);
  const uint64_t hash = XXH3_64bits_withSeed(bytes.data(), bytes.size(), static_cast<uint64_t>(size));
  return ModelIdentity{static_cast<uint64_t>(size), fmt::format("{:016x}", hash)};
}

Result<Profile> Profile::Read(const std::string& path) {
  RIDGE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, {.what = "the profile",
                                                                 .most_bytes = 16 << 20,
                                                                 .pipes = true,
                                                                 .remedy = "write one with ridge tune -o"}));
  const Json j = ParseJsonText<Json>(text);
  const auto wrong = [&](const char* what) {
    return Fail(Code::kInvalidData, "not a profile").Where(path).Found(what).Expected("what ridge tune -o wrote");
  };
  if (!j.is_object() || j.value("kind", Json()) != kKind) return wrong("no \"kind\": \"ridge profile\"");
  Profile p{.path = path};
  for (const char* key : {"fingerprint", "version", "model_hash"}) {
    if (!j.contains(key) || !j[key].is_string()) return wrong(key);
  }
  if (!j.contains("model_bytes") || !j["model_bytes"].is_number_unsigned()) return wrong("model_bytes");
  if (!j.contains("settings") || !j["settings"].is_object()) return wrong("settings");
  p.fingerprint = j["fingerprint"].get<std::string>();
  p.version = j["version"].get<std::string>();
  p.model = {j["model_bytes"].get<uint64_t>(), j["model_hash"].get<std::string>()};
  for (const auto& [key, value] : j["settings"].items()) {
    if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > 65536)
      return wrong("a setting that is no number from 1 to 65536");
    if (key == "n_threads")
      p.threads = value.get<int>();
    else if (key == "n_ubatch")
      p.chunk_tokens = value.get<int64_t>();
    else
      return wrong("a setting that this version does not know");
  }
  return p;
}

Status Profile::Check(const std::string& model_path) const {
  const auto refuse = [&](const char* what, const std::string& found, const std::string& expected) -> Status {
    return Fail(Code::kInvalidArgument, what)
        .Where(path)
        .Found(found)
        .Expected(expected)
        .Remedy("run ridge tune again, or do without --profile");
  };
  const std::string here = lab::Fingerprint(lab::ReadMachine(), "");
  if (fingerprint != here) return refuse("the profile is of another machine", fingerprint, here);
  if (version != BuildName()) return refuse("the profile is of another version", version, BuildName());
  RIDGE_ASSIGN_OR_RETURN(const ModelIdentity found, IdentityOf(model_path));
  if (found.size_bytes != model.size_bytes || found.hash != model.hash)
    return refuse("the profile is of another model", fmt::format("{} bytes, {}", model.size_bytes, model.hash),
                  fmt::format("{} bytes, {} of {}", found.size_bytes, found.hash, model_path));
  return {};
}

std::string Profile::Flags() const {
  std::string flags;
  if (threads) flags += fmt::format("-t {}", *threads);
  if (chunk_tokens) flags += fmt::format("{}-ub {}", flags.empty() ? "" : " ", *chunk_tokens);
  return flags;
}

Json ProfileJson(const Profile& p, Json evidence) {
  Json settings = Json::object();
  if (p.threads) settings["n_threads"] = *p.threads;
  if (p.chunk_tokens) settings["n_ubatch"] = *p.chunk_tokens;
  return {{"kind", kKind},
          {"fingerprint", p.fingerprint},
          {"version", p.version},
          {"model_bytes", p.model.size_bytes},
          {"model_hash", p.model.hash},
          {"settings", std::move(settings)},
          {"evidence", std::move(evidence)}};
}

}  // namespace ridge::app
