#include "lab/roofline/roofline_cache.h"

#include <cstdlib>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/json_text.h"
#include "base/read_file.h"
#include "lab/roofline/roofline_json.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Result<RooflineCache> RooflineCache::Default() {
  // A relative XDG_CACHE_HOME is to be ignored: XDG Base Directory Specification 0.8.
  if (const std::string cache = Environment("XDG_CACHE_HOME"); cache.starts_with('/'))
    return RooflineCache(cache + "/ridge");
  if (const std::string home = Environment("HOME"); !home.empty()) return RooflineCache(home + "/.cache/ridge");
  return Fail(Code::kNotFound, "no place for the cache of rooflines")
      .Found("HOME is not set")
      .Remedy("set XDG_CACHE_HOME to a folder");
}

Result<std::optional<Roofline>> RooflineCache::Load(const std::string& fingerprint) const {
  const std::string path = PathOf(fingerprint);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::optional<Roofline>();
  RIDGE_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(path, {.what = "the cached roofline", .most_bytes = 16 << 20}));
  const auto document = ParseJsonText<nlohmann::ordered_json>(text);
  const auto damaged = [&](std::string found) {
    return Fail(Code::kInvalidData, "the cached roofline is damaged").Where(path).Found(std::move(found));
  };
  if (document.is_discarded()) return damaged("no JSON");
  Result<Roofline> roofline = FromJson(document);
  if (!roofline) return damaged(roofline.error().found);
  if (roofline->fingerprint != fingerprint) return damaged("the fingerprint " + roofline->fingerprint);
  if (!roofline->verdict.quiet || roofline->is_short) return damaged("a measurement that is not to be kept");
  return std::optional<Roofline>(std::move(*roofline));
}

Status RooflineCache::Store(const Roofline& roofline) const {
  if (!roofline.verdict.quiet || roofline.is_short) {
    return Fail(Code::kInvalidArgument, "only a full measurement of a quiet machine is kept")
        .Found(roofline.is_short ? "a short one" : roofline.verdict.reasons.front());
  }
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error)
    return Fail(Code::kPermissionDenied, "cannot make the folder of the cache").Where(folder_).Found(error.message());
  RIDGE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(PathOf(roofline.fingerprint)));
  RIDGE_RETURN_IF_ERROR(file.Write(ToJson(roofline).dump(2) + "\n"));
  return file.Commit();
}

}  // namespace ridge::lab
