#include "server/wire.h"

#include <gtest/gtest.h>

namespace ridge::server {
namespace {

TEST(Wire, Head) {
  Response response{.status = 429, .body = "12345"};
  response.headers.emplace_back("Retry-After", "1");
  const std::string whole = Head(response, {.keep_alive = true});
  EXPECT_TRUE(whole.starts_with("HTTP/1.1 429 Too Many Requests\r\n"));
  EXPECT_NE(whole.find("\r\nContent-Length: 5\r\n"), std::string::npos);
  EXPECT_NE(whole.find("\r\nRetry-After: 1\r\n"), std::string::npos);
  EXPECT_TRUE(whole.ends_with("\r\nConnection: keep-alive\r\n\r\n"));
  const std::string chunked = Head(response, {.chunked = true});
  EXPECT_EQ(chunked.find("Content-Length"), std::string::npos);
  EXPECT_NE(chunked.find("\r\nTransfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_TRUE(chunked.ends_with("\r\nConnection: close\r\n\r\n"));
}

TEST(Wire, Chunk) {
  EXPECT_EQ(Chunk("abc"), "3\r\nabc\r\n");
  EXPECT_EQ(Chunk(std::string(300, 'x')).substr(0, 5), "12c\r\n");
}

TEST(Wire, Authorized) {
  EXPECT_TRUE(Authorized("sk-1", "Bearer sk-1"));
  EXPECT_TRUE(Authorized("sk-1", "bearer sk-1"));
  for (const char* header : {"", "Bearer", "Bearer ", "Bearer sk-", "Bearer sk-2", "Bearer sk-11", "Basic sk-1", "sk-1",
                             "Bearer  sk-1", "Bearer sk-1 "})
    EXPECT_FALSE(Authorized("sk-1", header)) << header;
  EXPECT_FALSE(Authorized("", "Bearer "));
}

}  // namespace
}  // namespace ridge::server
