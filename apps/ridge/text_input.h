// Text and token ids as commands take them: -p TEXT, -f FILE, --ids 1,2,3. Nothing is unescaped or cut; what is wrong is named by place.
//
//   TextInput input; input.AddTo(app); ... RIDGE_ASSIGN_OR_RETURN(std::string prompt, input.Read());
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace ridge::app {

class TextInput {
 public:
  void AddTo(CLI::App* app);
  const std::string& file() const { return file_; }  // of -f; empty: none
  bool given() const { return has_prompt_ || has_file_; }
  // The text: exactly one of -p and -f (a file or a pipe of 64 MiB at most), not empty, UTF-8. Errors: kUsage, those of ReadFile, kInvalidArgument
  // with the byte offset.
  Result<std::string> Read() const;

 private:
  std::string prompt_, file_;
  bool has_prompt_ = false, has_file_ = false;
};

Status CheckUtf8(std::string_view bytes, const std::string& where);
Result<std::vector<TokenId>> ParseIds(std::string_view list, size_t vocab_size);  // errors say --ids
Status CheckId(int64_t id, size_t vocab_size, const std::string& where);

}  // namespace ridge::app
