#include "profile.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "backend/backend.h"
#include "base/json_text.h"
#include "base/quantity.h"
#include "base/read_file.h"
#include "ceilings.h"
#include "engine/request.h"
#include "lab/machine.h"
#include "lab/roofline/roofline_cache.h"
#include "model_options.h"

namespace ridge::app {
namespace {

constexpr const char* kKind = "ridge profile";
constexpr std::streamoff kPart = 1 << 20;

bool IsKvType(const std::string& name) { return backend::ParseKvType(name).has_value(); }
bool IsFlashAttention(const std::string& name) { return name == "on" || name == "off"; }
bool IsSpeculation(const std::string& name) {
  using enum engine::Speculation;
  return name == engine::Name(kOff) || name == engine::Name(kLookup) || name == engine::Name(kAuto);
}

// What is wrong with one setting of a file; null: nothing, and it stands in the profile.
const char* TakeSetting(const std::string& key, const Json& value, Profile& p) {
  struct Word {
    const char* key;
    std::optional<std::string> Profile::* to;
    bool (*good)(const std::string&);
  };
  constexpr Word kWords[] = {{"type_k", &Profile::k_type, IsKvType},
                             {"type_v", &Profile::v_type, IsKvType},
                             {"flash_attn", &Profile::flash_attention, IsFlashAttention},
                             {"speculation", &Profile::speculation, IsSpeculation}};
  for (const Word& word : kWords) {
    if (key != word.key) continue;
    if (!value.is_string() || !word.good(value.get<std::string>())) return word.key;
    p.*word.to = value.get<std::string>();
    return nullptr;
  }
  if (key != "n_threads" && key != "n_ubatch") return "a setting that this version does not know";
  if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > 65536)
    return "a setting that is no number from 1 to 65536";
  if (key == "n_threads")
    p.threads = value.get<int>();
  else
    p.chunk_tokens = value.get<int64_t>();
  return nullptr;
}

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
    if (const char* what = TakeSetting(key, value, p)) return wrong(what);
  }
  if (const Json same = j.value("same_top", Json()); same.is_number()) p.same_top = same.get<double>();
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
    return refuse("the profile is of another model", fmt::format("{}, {}", Count(model.size_bytes, "byte"), model.hash),
                  fmt::format("{}, {} of {}", Count(found.size_bytes, "byte"), found.hash, model_path));
  return {};
}

Result<std::string> Profile::StoredPath(const ModelIdentity& model) {
  RIDGE_ASSIGN_OR_RETURN(const lab::RooflineCache cache, lab::RooflineCache::Default());
  return fmt::format("{}/profile-{}-{}.json", cache.folder(), lab::Fingerprint(lab::ReadMachine(), ""), model.hash);
}

std::optional<Profile> Profile::Stored(const std::string& model_path) {
  const Result<ModelIdentity> identity = IdentityOf(model_path);
  if (!identity) return std::nullopt;  // loading will say what is wrong with the model
  const Result<std::string> path = StoredPath(*identity);
  std::error_code ignored;
  if (!path || !std::filesystem::exists(*path, ignored)) return std::nullopt;
  Result<Profile> profile = Read(*path);
  const Status good = profile ? profile->Check(model_path) : std::unexpected(profile.error());
  if (good) return std::move(*profile);
  Note("a stored profile is not used: " + good.error().Message());
  return std::nullopt;
}

std::string Profile::Flags() const {
  std::string flags;
  const auto add = [&](const char* flag, const auto& value) {
    if (value) flags += fmt::format("{}{} {}", flags.empty() ? "" : " ", flag, *value);
  };
  add("-t", threads);
  add("-ub", chunk_tokens);
  add("-ctk", k_type);
  add("-ctv", v_type);
  add("-fa", flash_attention);
  add("--spec", speculation);
  return flags;
}

std::string Profile::Line() const {
  std::string line = fmt::format("profile {}: {}, where the command line says nothing else", path, Flags());
  if (changes_answers())
    line += same_top ? fmt::format("; answers change: the likeliest next token was the same {:.1f} % of the time",
                                   100 * *same_top)
                     : "; answers change";
  return line;
}

Json ProfileJson(const Profile& p, Json evidence) {
  Json settings = Json::object();
  if (p.threads) settings["n_threads"] = *p.threads;
  if (p.chunk_tokens) settings["n_ubatch"] = *p.chunk_tokens;
  if (p.k_type) settings["type_k"] = *p.k_type;
  if (p.v_type) settings["type_v"] = *p.v_type;
  if (p.flash_attention) settings["flash_attn"] = *p.flash_attention;
  if (p.speculation) settings["speculation"] = *p.speculation;
  return {{"kind", kKind},
          {"fingerprint", p.fingerprint},
          {"version", p.version},
          {"model_bytes", p.model.size_bytes},
          {"model_hash", p.model.hash},
          {"settings", std::move(settings)},
          {"same_top", p.same_top ? Json(*p.same_top) : Json(nullptr)},
          {"evidence", std::move(evidence)}};
}

}  // namespace ridge::app
