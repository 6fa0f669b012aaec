#include "hub/http.h"

#include <gtest/gtest.h>

namespace ridge::hub {
namespace {

HttpHead Parse(std::string_view line) {
  HttpHead head;
  ParseHeader(line, head);
  return head;
}

TEST(Http, OriginHasSchemeHostAndPort) {
  EXPECT_EQ(OriginOf("https://HuggingFace.co/a/b?c").value(), "https://huggingface.co:443");
  EXPECT_EQ(OriginOf("http://127.0.0.1:8080/x").value(), "http://127.0.0.1:8080");
  EXPECT_EQ(OriginOf("http://host").value(), "http://host:80");
  EXPECT_NE(OriginOf("http://host").value(), OriginOf("https://host").value());
  EXPECT_NE(OriginOf("http://host:81").value(), OriginOf("http://host").value());
  // The host is what counts, not what stands before an "@".
  EXPECT_EQ(OriginOf("https://huggingface.co@evil.example/").value(), "https://evil.example:443");
  for (const char* bad :
       {"", "huggingface.co", "ftp://host/", "file:///etc/passwd", "javascript:x", "https://", "http://a b/"}) {
    EXPECT_FALSE(OriginOf(bad)) << bad;
  }
}

TEST(Http, Headers) {
  EXPECT_EQ(Parse("Content-Length: 123\r\n").content_length_bytes, 123u);
  EXPECT_EQ(Parse("content-length:\t18446744073709551615").content_length_bytes, UINT64_MAX);
  EXPECT_FALSE(Parse("Content-Length: 18446744073709551616").content_length_bytes);
  EXPECT_FALSE(Parse("Content-Length: -1").content_length_bytes);
  EXPECT_FALSE(Parse("Content-Length: 1x").content_length_bytes);
  EXPECT_FALSE(Parse("Content-Length:").content_length_bytes);

  EXPECT_EQ(Parse("Content-Range: bytes 100-199/1000").range_start_bytes, 100u);
  EXPECT_EQ(Parse("Content-Range: bytes 100-199/1000").range_total_bytes, 1000u);
  EXPECT_EQ(Parse("Content-Range: bytes */1000").range_total_bytes, 1000u);
  EXPECT_FALSE(Parse("Content-Range: bytes */1000").range_start_bytes);
  EXPECT_FALSE(Parse("Content-Range: bytes 5-9/*").range_total_bytes);
  EXPECT_FALSE(Parse("Content-Range: bytes 59").range_start_bytes);
  EXPECT_FALSE(Parse("Content-Range: lines 5-9/10").range_start_bytes);

  EXPECT_EQ(Parse("Retry-After: 7").retry_after_seconds, 7.0);
  EXPECT_EQ(Parse("Retry-After: Thu, 01 Jan 1970 00:00:01 GMT").retry_after_seconds, 0.0);
  EXPECT_GT(Parse("Retry-After: Fri, 01 Jan 2100 00:00:00 GMT").retry_after_seconds.value(), 1e6);
  EXPECT_FALSE(Parse("Retry-After: soon").retry_after_seconds);
  EXPECT_FALSE(Parse("no colon").content_length_bytes);
}

TEST(Http, UrlEncode) {
  EXPECT_EQ(UrlEncode("aZ09-._~"), "aZ09-._~");
  EXPECT_EQ(UrlEncode("a b/c?d#e%"), "a%20b%2Fc%3Fd%23e%25");
  EXPECT_EQ(UrlEncode("\xc3\xa9"), "%C3%A9");
}

}  // namespace
}  // namespace ridge::hub
