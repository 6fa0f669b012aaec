#include "lab/evidence/seal.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lab/evidence/database.h"
#include "lab/evidence/document.h"
#include "lab/evidence/files.h"
#include "lab/evidence/report.h"
#include "lab/evidence/trace.h"
#include "lab/monitor/recorded.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kManifest = "MANIFEST", kLast = "xxh3-64 of the lines above: ";
constexpr std::string_view kRuns = "runs";  // empty where nothing could be run
constexpr const char* kDatabase = "samples.sqlite";

// Where two texts first differ, as a line.
std::string FirstDifference(std::string_view a, std::string_view b) {
  const size_t n = std::min(a.size(), b.size());
  size_t at = 0;
  while (at < n && a[at] == b[at]) at++;
  return fmt::format("line {}", 1 + std::ranges::count(a.substr(0, at), '\n'));
}

struct Entry {
  std::string hash;
  uint64_t bytes = 0;
};

std::map<std::string, Entry> ReadManifest(const std::string& manifest, std::vector<std::string>& problems) {
  std::map<std::string, Entry> entries;
  const size_t at = manifest.rfind(kLast);
  const std::string above = manifest.substr(0, at == std::string::npos ? manifest.size() : at);
  if (at == std::string::npos || (at > 0 && manifest[at - 1] != '\n') ||
      manifest.substr(at) != std::string(kLast) + HashText(above) + "\n")
    problems.push_back("MANIFEST: its own checksum does not fit");
  for (const std::string_view line : Lines(above)) {
    const std::vector<std::string_view> words = Words(line);
    const auto bytes = words.size() == 3 ? ToNumber(words[1]) : std::nullopt;
    if (!bytes ||
        !entries.emplace(UnquoteName(words[2]), Entry{std::string(words[0]), static_cast<uint64_t>(*bytes)}).second)
      problems.push_back("MANIFEST: a line that names no file, or one twice");
  }
  return entries;
}

void CheckDerived(const BundleEvidence& evidence, bool all, Checked& out) {
  auto derived = Derive(evidence);
  if (!derived) {
    out.problems.push_back("cannot be derived again: " + derived.error().Message());
    return;
  }
  for (const auto& [name, text] : *derived) {
    if (!all && name != "samples.csv") continue;
    const auto kept = ReadBeneath(evidence.folder, name);
    out.derived++;
    if (!kept) {
      out.problems.push_back(name + ": " + kept.error().what + ", and follows from the raw runs");
      continue;
    }
    if (*kept == text) continue;
    if (name != kDatabase) {
      out.problems.push_back(
          fmt::format("{}: does not follow from the raw runs: {} differs", name, FirstDifference(*kept, text)));
      continue;
    }
    const auto mine = DatabaseText(text), theirs = DatabaseText(*kept);
    if (!theirs)
      out.problems.push_back(name + ": " + theirs.error().Message());
    else if (!mine || *mine != *theirs)
      out.problems.push_back(name + ": its tables do not follow from the raw runs");
  }
}

}  // namespace

Result<std::map<std::string, std::string>> Derive(const BundleEvidence& e) {
  std::map<std::string, std::string> files;
  for (const EvidenceRun& r : e.runs) {
    Json settings = Json::object();
    for (const auto& [key, value] : r.record.output.resolved) settings[key] = value;
    const Json j = {
        {"subject", r.record.subject}, {"version", r.record.output.subject_version}, {"resolved", std::move(settings)}};
    files[fmt::format("runs/{:04}.resolved.json", r.plan.number)] =
        j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  files["samples.csv"] = SamplesCsv(e.samples);
  files["trace.json"] = TraceJson(e);
  RIDGE_ASSIGN_OR_RETURN(files[kDatabase], DatabaseOf(e));
  const std::vector<Document> documents = {ReportOf({e}, ReportLanguage::kEnglish),
                                           ReportOf({e}, ReportLanguage::kChinese)};
  files["report.md"] = ToMarkdown(documents);
  files["report.html"] = ToHtml(documents);
  return files;
}

Status SealBundle(const Bundle& bundle) {
  RIDGE_ASSIGN_OR_RETURN(const BundleEvidence evidence, ReadEvidence(bundle));
  RIDGE_ASSIGN_OR_RETURN(const auto derived, Derive(evidence));
  for (const auto& [name, text] : derived) RIDGE_RETURN_IF_ERROR(WriteWhole(bundle.folder() + "/" + name, text));
  RIDGE_ASSIGN_OR_RETURN(const Listing listing, ListBeneath(bundle.folder()));
  if (!listing.others.empty())
    return Fail(Code::kInvalidData, "the folder holds a link or something that is no file")
        .Where(bundle.folder() + "/" + QuoteName(listing.others[0]))
        .Remedy("take it away");
  for (const std::string& name : listing.empty) {
    if (name != kRuns)
      return Fail(Code::kInvalidData, "the folder holds an empty folder, which no manifest can name")
          .Where(bundle.folder() + "/" + QuoteName(name))
          .Remedy("take it away");
  }
  std::string manifest;
  for (const std::string& name : listing.files) {
    if (name == kManifest) continue;
    RIDGE_ASSIGN_OR_RETURN(const std::string text, ReadBeneath(bundle.folder(), name));
    manifest += fmt::format("{} {} {}\n", HashText(text), text.size(), QuoteName(name));
  }
  return WriteWhole(bundle.folder() + "/" + std::string(kManifest),
                    manifest + std::string(kLast) + HashText(manifest) + "\n");
}

Result<Checked> CheckBundle(const std::string& folder, const CheckOptions& options) {
  Checked out;
  RIDGE_ASSIGN_OR_RETURN(const std::string manifest, ReadBeneath(folder, std::string(kManifest), 64 << 20));
  const auto entries = ReadManifest(manifest, out.problems);
  for (const auto& [name, entry] : entries) {
    const auto text = ReadBeneath(folder, name);
    out.files++;
    if (!text && text.error().code == Code::kNotFound)
      out.problems.push_back(QuoteName(name) + ": is missing");
    else if (!text)
      out.problems.push_back(QuoteName(name) + ": " + text.error().what);
    else if (text->size() != entry.bytes || HashText(*text) != entry.hash)
      out.problems.push_back(QuoteName(name) + ": differs from what was sealed");
  }
  const auto listing = ListBeneath(folder);
  if (!listing) {
    out.problems.push_back(listing.error().Message());
  } else {
    for (const std::string& name : listing->files) {
      if (name != kManifest && !entries.contains(name))
        out.problems.push_back(QuoteName(name) + ": is not in the manifest");
    }
    for (const std::string& name : listing->others)
      out.problems.push_back(QuoteName(name) + ": is a link or no regular file");
    for (const std::string& name : listing->empty) {
      if (name != kRuns) out.problems.push_back(QuoteName(name) + ": is an empty folder that was added");
    }
  }
  const auto bundle = Bundle::Open(folder);
  if (!bundle) {
    out.problems.push_back("experiment.toml: " + bundle.error().Message());
    return out;
  }
  const auto evidence = ReadEvidence(*bundle);
  if (!evidence) {
    out.problems.push_back("runs: " + evidence.error().Message());
    return out;
  }
  CheckDerived(*evidence, options.rederive, out);
  if (evidence->runs.size() < evidence->planned)
    out.problems.push_back(fmt::format("{} of {} runs were made", evidence->runs.size(), evidence->planned));
  return out;
}

}  // namespace ridge::lab
