// ridge lab list and the ready-made experiments of ridge lab run NAME.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/read_file.h"
#include "lab.h"
#include "lab/evidence/files.h"
#include "lab/evidence/report.h"
#include "lab/experiments/catalogue.h"
#include "lab/monitor/recorded.h"
#include "model_options.h"
#include "pull_progress.h"
#include "text_table.h"

namespace ridge::app {
namespace {

constexpr uint64_t kMostTomlBytes = 1 << 20, kMostLogBytes = 1 << 30;

}  // namespace

Status LabList(Output& out) {
  if (out.json) {
    Json all = Json::array();
    for (const lab::Ready& r : lab::ReadyMade())
      all.push_back({{"name", r.name},
                     {"question", r.question},
                     {"question_zh", r.question_zh},
                     {"varies", r.varies},
                     {"models", r.models}});
    return out.Document(all);
  }
  TextTable table({{"name"}, {"varies"}, {"question"}});
  for (const lab::Ready& r : lab::ReadyMade()) table.Row({r.name, r.varies, r.question});
  return out.Write(table.Text());
}

Result<LabFile> OpenLabFile(const LabOptions& o) {
  const std::string& target = o.targets[0];
  std::error_code error;
  const bool file = target.ends_with(".toml") || std::filesystem::is_regular_file(target, error);
  if (file || lab::FindReady(target) == nullptr) {
    if (!file && target.find('/') == std::string::npos && target.find('.') == std::string::npos)
      return Fail(Code::kNotFound, "there is no such experiment")
          .Found(target)
          .Remedy("ridge lab list names the ready-made ones; a file ends in .toml");
    if (!o.models.empty() || !o.peer.empty() || !o.url.empty() || o.blocks > 0 || !o.write.empty())
      return Fail(Code::kUsage, "-m, --peer, --url, --blocks and --write go with a ready-made experiment")
          .Where(target);
    RIDGE_ASSIGN_OR_RETURN(std::string toml,
                           ReadFile(target, {.what = "the experiment", .most_bytes = kMostTomlBytes}));
    return LabFile{std::move(toml), std::filesystem::path(target).replace_extension(".lab").string()};
  }
  lab::ReadyOptions options{.models = o.models, .peer = o.peer, .url = o.url};
  if (o.blocks > 0) options.blocks = o.blocks;
  if (o.url.empty()) {
    // Found before anything runs, and fetched where it is missing; other programs take files alone.
    for (std::string& model : options.models) {
      RIDGE_ASSIGN_OR_RETURN(std::string path, ResolveOrPull(model));
      if (!o.peer.empty()) model = std::move(path);
    }
  }
  RIDGE_ASSIGN_OR_RETURN(std::string toml, lab::WriteReady(target, options, lab::Device::This()));
  return LabFile{std::move(toml), target + ".lab"};
}

Status WriteLabFile(const LabOptions& o, const std::string& toml, Output& out) {
  // Someone may have edited it.
  if (const auto there = ReadFile(o.write, {.what = "the experiment", .most_bytes = kMostTomlBytes});
      there ? !there->empty() && *there != toml : there.error().code == Code::kOutOfRange)
    return Fail(Code::kAlreadyExists, "the file is there and holds something else")
        .Where(o.write)
        .Remedy("give another name, or take it away first");
  RIDGE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(o.write));
  RIDGE_RETURN_IF_ERROR(file.Write(toml));
  RIDGE_RETURN_IF_ERROR(file.Commit());
  return out.json ? out.Document({{"written", o.write}})
                  : out.Write("written and not run: " + o.write + "; ridge lab run " + o.write + " runs it\n");
}

Status KeepRecorded(const lab::Bundle& bundle, const std::string& from, bool& added) {
  if (from.empty()) return {};
  if (lab::HomeworkNumber(bundle.experiment()) == 0)
    return Fail(Code::kUsage, "--from shows a log in the answer of a homework, and this is none")
        .Where("--from")
        .Found(bundle.experiment().name);
  RIDGE_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(from, {.what = "the log", .most_bytes = kMostLogBytes, .pipes = true}));
  if (auto log = lab::ParseRecorded(text); !log) {
    log.error().where = from;
    return std::unexpected(std::move(log).error());
  }
  std::string name = std::filesystem::path(from).filename().string();
  if (name.empty() || name.starts_with('.') || std::filesystem::path(from).string().starts_with("/dev/"))
    name = "log.txt";
  const std::string folder = bundle.folder() + "/recorded", path = folder + "/" + name;
  const std::string kept = lab::ReadBeneath(bundle.folder(), "recorded/" + name).value_or("");
  if (kept == text) return {};
  std::error_code error;
  if (std::filesystem::exists(folder, error) && !std::filesystem::is_empty(folder, error))
    return Fail(Code::kAlreadyExists, "the evidence holds another recorded log")
        .Where(folder)
        .Remedy("give another folder with -o, or take that one away");
  std::filesystem::create_directories(folder, error);
  if (error) return Fail(Code::kPermissionDenied, "cannot make the folder").Where(folder).Found(error.message());
  RIDGE_RETURN_IF_ERROR(lab::WriteWhole(path, text));
  added = true;
  return {};
}

}  // namespace ridge::app
