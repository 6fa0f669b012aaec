#include "store_json.h"

#include <fmt/format.h>

#include <ctime>

namespace ridge::app {

std::string UtcText(int64_t unix_seconds) {
  const time_t time = static_cast<time_t>(unix_seconds);
  tm parts{};
  if (::gmtime_r(&time, &parts) == nullptr) return "";
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string ShortDigest(const hub::Entry& entry) {
  return entry.files.empty() ? "" : entry.files[0].digest.Hex().substr(0, 12);
}

Json EntryJson(const hub::Store& store, const hub::Entry& entry) {
  Json files = Json::array();
  for (const hub::StoredFile& file : entry.files) {
    files.push_back({{"label", file.label},
                     {"digest", file.digest.Text()},
                     {"size_bytes", file.size_bytes},
                     {"blob", store.BlobPath(file.digest)}});
  }
  const Result<std::string> path = store.ModelPath(entry);
  return {{"name", entry.name},
          {"source", entry.source},
          {"digest", entry.files.empty() ? Json(nullptr) : Json(entry.files[0].digest.Text())},
          {"size_bytes", entry.size_bytes()},
          {"fetched", UtcText(entry.fetched_unix_s)},
          {"path", path ? Json(*path) : Json(nullptr)},
          {"files", std::move(files)}};
}

Result<hub::Store> DefaultStore() {
  RIDGE_ASSIGN_OR_RETURN(const std::string root, hub::DefaultStoreRoot());
  return hub::Store(root);
}

}  // namespace ridge::app
