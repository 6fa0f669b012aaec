#include "server/wire.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <iterator>

namespace ridge::server {
namespace {

std::string_view Reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
  }
}

std::string Date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  std::array<char, 64> text = {};
  return {text.data(), std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &utc)};
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::string Head(const Response& response, const Framing& framing) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nServer: ridge\r\nDate: {}\r\nContent-Type: {}\r\n", response.status,
                                Reason(response.status), Date(), response.content_type);
  for (const auto& [name, value] : response.headers) fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
  if (framing.chunked) {
    out += "Transfer-Encoding: chunked\r\n";
  } else if (!framing.until_end) {
    fmt::format_to(std::back_inserter(out), "Content-Length: {}\r\n", response.body.size());
  }
  out += framing.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return out;
}

std::string Chunk(std::string_view data) { return fmt::format("{:x}\r\n{}\r\n", data.size(), data); }

bool Authorized(std::string_view key, std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return false;
  for (size_t i = 0; i < kScheme.size(); i++) {
    if (Lower(authorization[i]) != kScheme[i]) return false;
  }
  const std::string_view given = authorization.substr(kScheme.size());
  unsigned differ = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); i++)
    differ |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key.empty() ? 1 : key[i % key.size()]);
  return differ == 0 && !key.empty();
}

}  // namespace ridge::server
