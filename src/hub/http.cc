#include "hub/http.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>

namespace ridge::hub {
namespace {

constexpr int kMaxRedirects = 10;

enum class Reach { kPublic, kPrivate, kLinkLocal };

Reach ReachOfV4(uint32_t a) {                         // host byte order
  if ((a >> 16) == 0xa9fe) return Reach::kLinkLocal;  // 169.254/16, where clouds keep credentials
  if ((a >> 24) == 127 || (a >> 24) == 10 || (a >> 24) == 0) return Reach::kPrivate;  // loopback, 10/8, "this host"
  if ((a >> 20) == 0xac1 || (a >> 16) == 0xc0a8) return Reach::kPrivate;              // 172.16/12, 192.168/16
  if ((a >> 22) == (0x64400000u >> 22)) return Reach::kPrivate;                       // 100.64/10
  return Reach::kPublic;
}

Reach ReachOf(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, address, sizeof v4);
    return ReachOfV4(ntohl(v4.sin_addr.s_addr));
  }
  if (address->sa_family != AF_INET6) return Reach::kPrivate;
  sockaddr_in6 v6;
  std::memcpy(&v6, address, sizeof v6);
  const uint8_t* a = v6.sin6_addr.s6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    return ReachOfV4(uint32_t{a[12]} << 24 | uint32_t{a[13]} << 16 | uint32_t{a[14]} << 8 | a[15]);
  }
  if (a[0] == 0xfe && (a[1] & 0xc0) == 0x80) return Reach::kLinkLocal;
  if ((a[0] & 0xfe) == 0xfc || IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) || IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr))
    return Reach::kPrivate;
  return Reach::kPublic;
}

// Through a proxy the socket's address is the proxy's and says nothing about the server.
bool ProxyConfigured() {
  for (const char* name : {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return true;
  }
  return false;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::optional<uint64_t> Number(std::string_view text) {
  text = Trim(text);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct UrlHandle {
  CURLU* handle = curl_url();
  ~UrlHandle() { curl_url_cleanup(handle); }
  std::string Part(CURLUPart part, unsigned flags = 0) const {
    char* text = nullptr;
    if (curl_url_get(handle, part, &text, flags) != CURLUE_OK || text == nullptr) return {};
    std::string copy = text;
    curl_free(text);
    return copy;
  }
};

}  // namespace

std::optional<std::string> OriginOf(const std::string& url) {
  UrlHandle parsed;
  if (parsed.handle == nullptr || curl_url_set(parsed.handle, CURLUPART_URL, url.c_str(), 0) != CURLUE_OK)
    return std::nullopt;
  std::string host = parsed.Part(CURLUPART_HOST);
  std::transform(host.begin(), host.end(), host.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string scheme = parsed.Part(CURLUPART_SCHEME);
  if (host.empty() || (scheme != "http" && scheme != "https")) return std::nullopt;
  return scheme + "://" + host + ":" + parsed.Part(CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

void ParseHeader(std::string_view line, HttpHead& head) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string_view value = Trim(line.substr(colon + 1));
  if (name == "content-length") {
    head.content_length_bytes = Number(value);
  } else if (name == "content-range" && value.starts_with("bytes ")) {  // bytes 100-199/1000 or bytes */1000
    const size_t dash = value.find('-');
    const size_t slash = value.find('/');
    if (slash != std::string_view::npos) head.range_total_bytes = Number(value.substr(slash + 1));
    if (dash != std::string_view::npos && dash < slash) head.range_start_bytes = Number(value.substr(6, dash - 6));
  } else if (name == "retry-after") {  // seconds or a date
    if (const std::optional<uint64_t> seconds = Number(value)) {
      head.retry_after_seconds = static_cast<double>(*seconds);
    } else if (const time_t date = curl_getdate(std::string(value).c_str(), nullptr); date >= 0) {
      head.retry_after_seconds = std::max(0.0, std::difftime(date, std::time(nullptr)));
    }
  }
}

std::string UrlEncode(std::string_view text) {
  std::string out;
  for (unsigned char c : text) {
    if (std::isalnum(c) || c == '-' || c == '.' || c == '_' || c == '~') {
      out += static_cast<char>(c);
    } else {
      out += fmt::format("%{:02X}", c);
    }
  }
  return out;
}

struct HttpClient::State {
  HttpOptions options;
  CURL* curl = nullptr;
  bool proxied = ProxyConfigured();
  std::map<std::string, bool> is_private;  // origin -> it answered from a private address

  // Of the hop under way.
  HttpHead head;
  const Sink* sink = nullptr;
  Status sink_status;
  std::string origin;
  bool allow_private = true;
  bool allow_link_local = true;
  bool blocked = false;

  bool Cancelled() const { return options.cancel != nullptr && options.cancel->load(); }
  bool IsBody() const { return head.status == 200 || head.status == 206; }

  static size_t OnHeader(char* data, size_t size, size_t count, void* self) {
    State& state = *static_cast<State*>(self);
    const std::string_view line(data, size * count);
    if (line.starts_with("HTTP/")) {
      state.head = {};
      const size_t space = line.find(' ');
      if (space != std::string_view::npos)
        state.head.status = std::strtol(std::string(line.substr(space + 1, 3)).c_str(), nullptr, 10);
    } else {
      ParseHeader(line, state.head);
    }
    return size * count;
  }

  static size_t OnBody(char* data, size_t size, size_t count, void* self) {
    State& state = *static_cast<State*>(self);
    if (!state.IsBody()) return size * count;  // an error page
    state.sink_status = (*state.sink)(state.head, std::as_bytes(std::span(data, size * count)));
    return state.sink_status ? size * count : 0;
  }

  static int OnProgress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    State& state = *static_cast<State*>(self);
    if (state.options.tick) state.options.tick();
    return state.Cancelled() ? 1 : 0;
  }

  static curl_socket_t OnSocket(void* self, curlsocktype, curl_sockaddr* address) {
    State& state = *static_cast<State*>(self);
    const Reach reach = ReachOf(&address->addr);
    if (!state.proxied) {
      if ((reach == Reach::kLinkLocal && !state.allow_link_local) ||
          (reach == Reach::kPrivate && !state.allow_private)) {
        state.blocked = true;
        return CURL_SOCKET_BAD;
      }
      state.is_private[state.origin] = reach != Reach::kPublic;
    }
    return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  }

  void SetUp(const std::string& url, const HttpRequest& request, curl_slist* headers) {
    curl_easy_reset(curl);
    const auto set = [this](CURLoption option, auto value) { (void)curl_easy_setopt(curl, option, value); };
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_USERAGENT, "ridge");
    set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(options.connect_seconds));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_seconds));
    set(CURLOPT_HEADERFUNCTION, &OnHeader);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &OnBody);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &OnProgress);
    set(CURLOPT_XFERINFODATA, this);
    set(CURLOPT_OPENSOCKETFUNCTION, &OnSocket);
    set(CURLOPT_OPENSOCKETDATA, this);
    set(CURLOPT_BUFFERSIZE, 256L * 1024);
    for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE"}) {  // the library itself reads neither
      if (const char* file = std::getenv(name); file != nullptr && *file != '\0') {
        set(CURLOPT_CAINFO, file);
        break;
      }
    }
    if (request.range_start_bytes > 0) {
      set(CURLOPT_RANGE, fmt::format("{}-", request.range_start_bytes).c_str());  // copied by libcurl
    }
  }

  HttpResult Failed(CURLcode code, const std::string& url) {
    HttpResult result;
    result.head = head;
    const auto fail = [&](Verdict verdict, Code error_code, std::string what, std::string remedy) {
      result.verdict = verdict;
      result.error = Fail(error_code, std::move(what))
                         .Where(origin)
                         .Found(curl_easy_strerror(code))
                         .Remedy(std::move(remedy))
                         .Take();
      return result;
    };
    if (blocked) {
      result.verdict = Verdict::kFatal;
      result.error =
          Fail(Code::kPermissionDenied, "refused a redirect to an address of a private network").Where(url).Take();
      return result;
    }
    long proxy_status = 0;
    (void)curl_easy_getinfo(curl, CURLINFO_HTTP_CONNECTCODE, &proxy_status);
    if (proxy_status != 0 && proxy_status != 200) {  // what the server would have said is not known
      result.verdict = Verdict::kUnreachable;
      result.error = Fail(Code::kUnavailable, "proxy refuses the connection")
                         .Where(origin)
                         .Found(fmt::format("HTTP status {} of the proxy", proxy_status))
                         .Remedy("check the proxy settings (https_proxy, no_proxy)")
                         .Take();
      return result;
    }
    switch (code) {
      case CURLE_ABORTED_BY_CALLBACK:
        result.verdict = Verdict::kFatal;
        result.error = Fail(Code::kCancelled, "download stopped")
                           .Remedy("what came is kept: the same command goes on from there")
                           .Take();
        return result;
      case CURLE_WRITE_ERROR:
        if (sink_status) break;
        result.verdict = Verdict::kFatal;
        result.error = std::move(sink_status).error();
        return result;
      case CURLE_COULDNT_RESOLVE_HOST:
      case CURLE_COULDNT_RESOLVE_PROXY:
      case CURLE_COULDNT_CONNECT:
      case CURLE_SSL_CONNECT_ERROR:
        return fail(Verdict::kUnreachable, Code::kUnavailable, "cannot reach server",
                    "check the network and the proxy settings");
      case CURLE_OPERATION_TIMEDOUT: {
        long connected = 0;
        double connect_time = 0;
        (void)curl_easy_getinfo(curl, CURLINFO_CONNECT_TIME, &connect_time);
        connected = connect_time > 0;
        if (!connected)
          return fail(Verdict::kUnreachable, Code::kUnavailable, "cannot reach server",
                      "check the network and the proxy settings");
        return fail(Verdict::kInterrupted, Code::kUnavailable, "server sends nothing any more", "try again later");
      }
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE:
        return fail(Verdict::kFatal, Code::kUnavailable, "no trusted connection to server",
                    "install ca-certificates, or name your authority's file in SSL_CERT_FILE");
      case CURLE_URL_MALFORMAT:
      case CURLE_UNSUPPORTED_PROTOCOL:
        return fail(Verdict::kFatal, Code::kInvalidArgument, "not an http or https URL",
                    "check HF_ENDPOINT and RIDGE_OLLAMA_REGISTRY");
      default: break;
    }
    return fail(Verdict::kInterrupted, Code::kUnavailable, "connection broke", "try again: what came is kept");
  }
};

HttpClient::HttpClient(HttpOptions options) : state_(std::make_unique<State>()) {
  // libcurl's own initialization is process-wide; a function-local static makes it happen once and thread-safely.
  static const CURLcode initialized = curl_global_init(CURL_GLOBAL_DEFAULT);
  RIDGE_CHECK(initialized == CURLE_OK);
  state_->options = std::move(options);
  state_->curl = curl_easy_init();
  RIDGE_CHECK(state_->curl != nullptr);
}

HttpClient::~HttpClient() { curl_easy_cleanup(state_->curl); }

HttpResult HttpClient::Get(const HttpRequest& request, const Sink& sink) {
  State& state = *state_;
  std::string url = request.url;
  const std::optional<std::string> home = OriginOf(url);
  const auto fatal = [&](Fail failure) {
    HttpResult result;
    result.error = std::move(failure).Take();
    return result;
  };
  if (!home)
    return fatal(Fail(Code::kInvalidArgument, "not an http or https URL")
                     .Where(url)
                     .Remedy("check HF_ENDPOINT and RIDGE_OLLAMA_REGISTRY"));
  bool left_home = false;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    const std::optional<std::string> origin = OriginOf(url);
    if (!origin)
      return fatal(Fail(Code::kPermissionDenied, "refused a redirect to what is not an http or https URL").Where(url));
    left_home = left_home || *origin != *home;
    state.head = {};
    state.sink = &sink;
    state.sink_status = {};
    state.origin = *origin;
    state.blocked = false;
    state.allow_link_local = *origin == *home;
    state.allow_private = *origin == *home || state.is_private[*home];

    curl_slist* headers = nullptr;
    if (!request.accept.empty()) headers = curl_slist_append(headers, ("Accept: " + request.accept).c_str());
    if (!request.bearer.empty() && !left_home)
      headers = curl_slist_append(headers, ("Authorization: Bearer " + request.bearer).c_str());
    state.SetUp(url, request, headers);
    const CURLcode code = curl_easy_perform(state.curl);
    char* location = nullptr;
    (void)curl_easy_getinfo(state.curl, CURLINFO_REDIRECT_URL, &location);
    const std::string next = location == nullptr ? "" : location;
    (void)curl_easy_setopt(state.curl, CURLOPT_HTTPHEADER, nullptr);
    curl_slist_free_all(headers);

    if (code != CURLE_OK) return state.Failed(code, url);
    HttpResult result;
    result.head = state.head;
    if (state.IsBody()) {
      result.verdict = Verdict::kDone;
      return result;
    }
    const bool redirect = state.head.status == 301 || state.head.status == 302 || state.head.status == 303 ||
                          state.head.status == 307 || state.head.status == 308;
    if (!redirect || next.empty()) {
      result.verdict = Verdict::kStatus;
      result.error = Fail(Code::kUnavailable, "server refused the request")
                         .Where(*origin)
                         .Found(fmt::format("HTTP status {}", state.head.status))
                         .Take();
      return result;
    }
    if (origin->starts_with("https://") && next.starts_with("http://")) {
      return fatal(Fail(Code::kPermissionDenied, "refused a redirect from https to http").Where(next));
    }
    url = next;
  }
  return fatal(Fail(Code::kUnavailable, "too many redirects")
                   .Where(request.url)
                   .Expected(fmt::format("at most {}", kMaxRedirects)));
}

}  // namespace ridge::hub
