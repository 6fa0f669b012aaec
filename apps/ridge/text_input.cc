#include "text_input.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "base/read_file.h"
#include "option_names.h"
#include "text/utf8.h"

namespace ridge::app {
namespace {

constexpr uint64_t kMostTextBytes = uint64_t{64} << 20;

}  // namespace

void TextInput::AddTo(CLI::App* app) {
  AllowEmpty(app->add_option_function<std::string>(  // what is wrong with it is told as of any text
      "-p,--prompt", [this](const std::string& text) { prompt_ = text, has_prompt_ = true; },
      "the text (taken as it is: no escapes)"));
  app->add_option_function<std::string>(
      "-f,--file", [this](const std::string& path) { file_ = path, has_file_ = true; }, "a file that holds the text");
}

Result<std::string> TextInput::Read() const {
  if (has_prompt_ && has_file_) return Fail(Code::kUsage, "-p and -f exclude one another").Remedy("give one of them");
  if (!given()) return Fail(Code::kUsage, "no text").Expected("-p TEXT or -f FILE");
  std::string text = prompt_;
  const std::string where = has_file_ ? file_ : "-p";
  if (has_file_) {
    RIDGE_ASSIGN_OR_RETURN(text, ReadFile(file_, {.what = "the text", .most_bytes = kMostTextBytes, .pipes = true}));
  }
  if (text.empty()) return Fail(Code::kInvalidArgument, "the text is empty").Where(has_file_ ? file_ : "-p TEXT");
  RIDGE_RETURN_IF_ERROR(CheckUtf8(text, where));
  return text;
}

Status CheckUtf8(std::string_view bytes, const std::string& where) {
  const auto at = text::FirstInvalidUtf8(bytes);
  if (!at) return {};
  return Fail(Code::kInvalidArgument, "the text is not UTF-8")
      .Where(fmt::format("{}, byte {}", where, *at))
      .Found(fmt::format("0x{:02X}", static_cast<unsigned char>(bytes[*at])))
      .Remedy("convert it to UTF-8");
}

Status CheckId(int64_t id, size_t vocab_size, const std::string& where) {
  if (id >= 0 && static_cast<uint64_t>(id) < vocab_size) return {};
  return Fail(Code::kOutOfRange, "the token is outside the vocabulary")
      .Where(where)
      .Found(std::to_string(id))
      .Expected(fmt::format("0 to {}", vocab_size - 1));
}

Result<std::vector<TokenId>> ParseIds(std::string_view list, size_t vocab_size) {
  std::vector<TokenId> ids;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    list = comma == list.npos ? std::string_view() : list.substr(comma + 1);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    int64_t id = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), id);
    if (item.empty() || error != std::errc() || end != item.data() + item.size()) {
      return Fail(Code::kUsage, "not a token id")
          .Where("--ids")
          .Found("\"" + text::ReplaceInvalidUtf8(item) + "\"")
          .Expected("numbers with commas between");
    }
    RIDGE_RETURN_IF_ERROR(CheckId(id, vocab_size, fmt::format("--ids, item {}", ids.size() + 1)));
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

}  // namespace ridge::app
