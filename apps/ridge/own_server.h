// `ridge serve` as a child of this process, on a free port of loopback, for what is measured over HTTP.
//
//   RIDGE_ASSIGN_OR_RETURN(OwnServer server, OwnServer::Start({"-m", path, "-t", "2"}));   // once it takes requests
//   RunLoad({.url = server.url()});
//
// Guarantee: the server ends with this object, and with this process however it ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace ridge::app {

class OwnServer {
 public:
  // Errors: kUnavailable with the last line that the server wrote.
  static Result<OwnServer> Start(std::vector<std::string> arguments);
  OwnServer(OwnServer&& other) noexcept : pid_(std::exchange(other.pid_, -1)), url_(std::move(other.url_)) {}
  OwnServer& operator=(OwnServer&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(url_, other.url_);
    return *this;
  }
  ~OwnServer();

  const std::string& url() const { return url_; }

 private:
  OwnServer() = default;
  pid_t pid_ = -1;
  std::string url_;
};

}  // namespace ridge::app
