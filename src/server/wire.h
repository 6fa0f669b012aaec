// The bytes of an answer: status line, headers, chunks; and the comparison of keys.
//
//   out = Head(response, {.keep_alive = true}) + response.body;
//   out += Chunk(events);   out += kLastChunk;
//
// Guarantees: pure functions. A header's value never holds a line break.
#pragma once

#include <string>
#include <string_view>

#include "server/http.h"

namespace ridge::server {

struct Framing {
  bool keep_alive = false;
  bool chunked = false;  // else Content-Length, or none where the end of the connection ends the body
  bool until_end = false;
};

std::string Head(const Response& response, const Framing& framing);
std::string Chunk(std::string_view data);  // data is not empty
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Whether the header "Authorization" carries the key. Its time tells nothing about the key but its length.
bool Authorized(std::string_view key, std::string_view authorization);

}  // namespace ridge::server
