#include "hub/archive.h"

#include <fmt/format.h>
#include <zip.h>

#include "base/quantity.h"

namespace ridge::hub {
namespace {

constexpr zip_int64_t kMaxMembers = 100000;

}  // namespace

struct Archive::State {
  zip_t* zip = nullptr;
  std::string path;
  ~State() {
    if (zip != nullptr) zip_discard(zip);
  }
};

Archive::Archive(std::unique_ptr<State> state, std::vector<Member> members)
    : state_(std::move(state)), members_(std::move(members)) {}
Archive::Archive(Archive&&) noexcept = default;
Archive& Archive::operator=(Archive&&) noexcept = default;
Archive::~Archive() = default;

Result<Archive> Archive::Open(const std::string& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  int error = 0;
  state->zip = zip_open(path.c_str(), ZIP_RDONLY, &error);
  if (state->zip == nullptr) {
    zip_error_t detail;
    zip_error_init_with_code(&detail, error);
    const std::string found = zip_error_strerror(&detail);
    zip_error_fini(&detail);
    return Fail(error == ZIP_ER_NOENT ? Code::kNotFound : Code::kInvalidData,
                "cannot read the package as a zip archive")
        .Where(path)
        .Found(found);
  }
  const zip_int64_t count = zip_get_num_entries(state->zip, 0);
  if (count < 0 || count > kMaxMembers) {
    return Fail(Code::kInvalidData, "package has too many files")
        .Where(path)
        .Found(fmt::format("{}", count))
        .Expected(fmt::format("at most {}", kMaxMembers));
  }
  std::vector<Member> members;
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t info;
    zip_stat_init(&info);
    if (zip_stat_index(state->zip, static_cast<zip_uint64_t>(i), 0, &info) != 0 || (info.valid & ZIP_STAT_NAME) == 0 ||
        (info.valid & ZIP_STAT_SIZE) == 0)
      continue;
    members.push_back({static_cast<uint64_t>(i), info.name, info.size});
  }
  return Archive(std::move(state), std::move(members));
}

Status Archive::Read(const Member& member, const std::function<Status(std::span<const std::byte>)>& sink) const {
  const auto broken = [&](const std::string& found) {
    return Fail(Code::kInvalidData, "package is damaged").Where(state_->path + ": " + member.name).Found(found);
  };
  zip_file_t* file = zip_fopen_index(state_->zip, member.index, 0);
  if (file == nullptr) return broken(zip_strerror(state_->zip));
  const std::unique_ptr<zip_file_t, void (*)(zip_file_t*)> owner(file, [](zip_file_t* f) { (void)zip_fclose(f); });
  std::vector<std::byte> buffer(1 << 20);
  uint64_t done_bytes = 0;
  while (true) {
    const zip_int64_t count = zip_fread(file, buffer.data(), buffer.size());
    if (count < 0) return broken(zip_file_strerror(file));
    if (count == 0) break;
    if (static_cast<uint64_t>(count) > member.size_bytes - done_bytes) return broken("more bytes than its size says");
    done_bytes += static_cast<uint64_t>(count);
    RIDGE_RETURN_IF_ERROR(sink(std::span(buffer).first(static_cast<size_t>(count))));
  }
  if (done_bytes != member.size_bytes) return broken(fmt::format("{} of {} bytes", done_bytes, member.size_bytes));
  return {};
}

Result<std::string> Archive::ReadText(const Member& member, size_t max_bytes) const {
  if (member.size_bytes > max_bytes) {
    return Fail(Code::kOutOfRange, "file in the package is too long")
        .Where(member.name)
        .Found(Count(member.size_bytes, "byte"))
        .Expected(fmt::format("at most {}", max_bytes));
  }
  std::string text;
  RIDGE_RETURN_IF_ERROR(Read(member, [&](std::span<const std::byte> bytes) -> Status {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }));
  return text;
}

}  // namespace ridge::hub
