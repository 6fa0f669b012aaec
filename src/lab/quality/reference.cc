#include "lab/quality/reference.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "base/math.h"
#include "base/read_file.h"
#include "sampling/candidates.h"
#include "sampling/log_probability.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "RIDGEREF";
constexpr uint32_t kVersion = 1;
constexpr double kUnitsPerNat = 262144;  // 2^18: 24 bits reach 64 nats
constexpr uint32_t kLargest24 = (1u << 24) - 1;

void PutVarint(uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

template <class T>
void PutRaw(T value, std::string& out) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void PutLogProbability(double value, std::string& out) {
  const double units = std::clamp(-value * kUnitsPerNat, 0.0, static_cast<double>(kLargest24));
  const uint32_t rounded = static_cast<uint32_t>(units + 0.5);
  for (int shift = 0; shift < 24; shift += 8) out += static_cast<char>(rounded >> shift);
}

// Reads with bounds; after the first read beyond the end everything is 0 and ok() is false.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  size_t left() const { return bytes_.size() - at_; }
  std::string_view Take(size_t n) {
    if (n > left()) ok_ = false;
    if (!ok_) return {};
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  template <class T>
  T Raw() {
    T value = {};
    const std::string_view bytes = Take(sizeof(T));
    if (ok_) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 63; shift += 7) {
      const uint8_t byte = Raw<uint8_t>();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  double LogProbability() {
    const std::string_view b = Take(3);
    if (!ok_) return 0;
    const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(b[i])); };
    return -static_cast<double>(byte(0) | byte(1) << 8 | byte(2) << 16) / kUnitsPerNat;
  }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

// splitmix64: one number in [0, 1) for each row.
double UnitOf(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

Fail Damaged(const std::string& path, std::string found) {
  return Fail(Code::kInvalidData, "the reference is damaged")
      .Where(path)
      .Found(std::move(found))
      .Remedy("write it anew: ridge perplexity --save-reference");
}

Result<ReferenceAbout> ParseAbout(const std::string& path, std::string_view text, uint64_t& n_tokens) {
  const Json j = ParseJsonText<Json>(text);
  ReferenceAbout about;
  try {
    about.model = j.at("model"), about.architecture = j.at("architecture");
    about.vocab = j.at("vocab"), about.vocab_hash = j.at("vocab_hash");
    about.windows = {.window_tokens = j.at("window_tokens"),
                     .whole = j.at("whole"),
                     .stride_tokens = j.at("stride_tokens"),
                     .max_windows = j.at("max_windows")};
    if (!j.at("bos").is_null()) about.bos = j.at("bos").get<TokenId>();
    about.rows = j.at("rows");
    about.shape = {.top = j.at("top"), .samples = j.at("tail_samples")};
    n_tokens = j.at("n_tokens");
    about.config = j.at("config").dump();
  } catch (const Json::exception& e) {
    return Damaged(path, fmt::format("a header that lacks a field: {}", e.what()));
  }
  return about;
}

}  // namespace

ReferenceShape DefaultShape(int64_t vocab) {
  // A kept token takes 4.6 bytes on the average (ids some 190 apart), a drawn one 5.
  const int64_t top = std::clamp<int64_t>(static_cast<int64_t>(FullLogitsBytes(vocab, 1) / 50 * 10 / 77), 32,
                                          std::max<int64_t>(vocab, 1));
  return {.top = std::min(top, vocab), .samples = top / 2};
}

uint64_t FullLogitsBytes(int64_t vocab, int64_t rows) {
  return 2 * static_cast<uint64_t>(vocab) * static_cast<uint64_t>(rows);
}

std::string TokensHash(std::span<const TokenId> tokens) {
  return fmt::format("{:016x}", XXH3_64bits(tokens.data(), tokens.size_bytes()));
}

std::string EncodeRow(std::span<const float> logits, TokenId target, int64_t index, const ReferenceShape& shape) {
  const double sum = sampling::LogSumExp(logits);
  const auto log_probability = [&](TokenId id) {
    return std::isnan(logits[static_cast<size_t>(id)]) ? -HUGE_VAL : logits[static_cast<size_t>(id)] - sum;
  };
  sampling::Candidates candidates;
  candidates.FillTopK(logits, static_cast<size_t>(std::min<int64_t>(shape.top, static_cast<int64_t>(logits.size()))));
  std::vector<TokenId> top;
  for (const sampling::Candidate& c : candidates.items()) top.push_back(c.id);
  const TokenId likeliest = top.empty() ? 0 : top[0];
  std::sort(top.begin(), top.end());

  std::vector<double> p(logits.size());
  for (size_t i = 0; i < p.size(); i++) p[i] = log_probability(static_cast<TokenId>(i));
  ExpEach(p);
  for (const TokenId id : top) p[static_cast<size_t>(id)] = 0;
  double mass = 0;
  for (const double x : p) mass += x;

  std::string out;
  PutRaw(static_cast<float>(log_probability(target)), out);
  PutRaw(static_cast<float>(mass), out);
  PutVarint(static_cast<uint64_t>(std::lower_bound(top.begin(), top.end(), likeliest) - top.begin()), out);
  PutVarint(top.size(), out);
  TokenId before = 0;
  for (const TokenId id : top) {
    PutVarint(static_cast<uint64_t>(id - before), out);
    PutLogProbability(log_probability(id), out);
    before = id;
  }
  // Systematic draws: equal steps through the tail's mass from a start that the row's number gives.
  std::string drawn;
  uint64_t n_drawn = 0;
  before = 0;
  if (mass > 0 && shape.samples > 0) {
    const double step = mass / static_cast<double>(shape.samples);
    double next = UnitOf(static_cast<uint64_t>(index)) * step, at = 0;
    for (size_t i = 0; i < p.size(); i++) {
      at += p[i];
      uint64_t draws = 0;
      for (; next < at; next += step) draws++;
      if (draws == 0) continue;
      const TokenId id = static_cast<TokenId>(i);
      PutVarint(static_cast<uint64_t>(id - before) << 1 | (draws > 1), drawn);
      if (draws > 1) PutVarint(draws, drawn);
      PutLogProbability(log_probability(id), drawn);
      before = id;
      n_drawn++;
    }
  }
  PutVarint(n_drawn, out);
  return out += drawn;
}

Result<ReferenceRow> DecodeRow(std::string_view bytes, int64_t vocab) {
  Bytes in(bytes);
  ReferenceRow row;
  row.target_log_probability = in.Raw<float>();
  row.tail_mass = in.Raw<float>();
  const uint64_t likeliest = in.Varint(), n_top = in.Varint();
  const auto tokens = [&](uint64_t n, bool draws, std::vector<KeptToken>& out) {
    if (n > bytes.size()) return false;
    out.reserve(n);
    uint64_t id = 0;
    for (uint64_t i = 0; i < n && in.ok(); i++) {
      const uint64_t distance = in.Varint();
      id += draws ? distance >> 1 : distance;
      const uint64_t count = draws && (distance & 1) ? in.Varint() : 1;
      if (id >= static_cast<uint64_t>(vocab)) return false;
      out.push_back({static_cast<TokenId>(id), in.LogProbability(), static_cast<int64_t>(count)});
    }
    return in.ok();
  };
  bool good = tokens(n_top, false, row.top) && likeliest < row.top.size();
  good = good && tokens(in.Varint(), true, row.samples) && in.ok() && in.left() == 0;
  if (!good) return Fail(Code::kInvalidData, "a row of the reference breaks its format");
  row.likeliest = row.top[likeliest].id;
  return row;
}

ReferenceWriter::ReferenceWriter(AtomicFile file)
    : file_(std::move(file)), checksum_(XXH3_createState(), [](XXH3_state_s* s) { XXH3_freeState(s); }) {
  XXH3_64bits_reset(checksum_.get());
}

Result<ReferenceWriter> ReferenceWriter::Create(const std::string& path, const ReferenceAbout& about) {
  RIDGE_RETURN_IF_ERROR(CheckReplaces(path, "reference of log-probabilities", {kMagic}));
  RIDGE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  ReferenceWriter writer(std::move(file));
  writer.expected_rows_ = about.rows;
  const std::string header = Json({{"model", about.model},
                                   {"architecture", about.architecture},
                                   {"vocab", about.vocab},
                                   {"vocab_hash", about.vocab_hash},
                                   {"n_tokens", about.tokens.size()},
                                   {"tokens_hash", TokensHash(about.tokens)},
                                   {"window_tokens", about.windows.window_tokens},
                                   {"whole", about.windows.whole},
                                   {"stride_tokens", about.windows.stride_tokens},
                                   {"max_windows", about.windows.max_windows},
                                   {"bos", about.bos ? Json(*about.bos) : Json(nullptr)},
                                   {"rows", about.rows},
                                   {"top", about.shape.top},
                                   {"tail_samples", about.shape.samples},
                                   {"config", ParseJsonText<Json>(about.config)}})
                                 .dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string start(kMagic);
  PutRaw(kVersion, start);
  PutRaw(static_cast<uint32_t>(header.size()), start);
  start += header;
  for (const TokenId id : about.tokens) PutRaw(static_cast<uint32_t>(id), start);
  RIDGE_RETURN_IF_ERROR(writer.Write(start));
  return writer;
}

Status ReferenceWriter::Write(std::string_view bytes) {
  XXH3_64bits_update(checksum_.get(), bytes.data(), bytes.size());
  return file_.Write(bytes);
}

Status ReferenceWriter::Add(std::string_view row) {
  rows_++;
  std::string length;
  PutVarint(row.size(), length);
  RIDGE_RETURN_IF_ERROR(Write(length));
  return Write(row);
}

Status ReferenceWriter::Commit() {
  RIDGE_CHECK(rows_ == expected_rows_);
  std::string end;
  PutRaw(static_cast<uint64_t>(XXH3_64bits_digest(checksum_.get())), end);
  RIDGE_RETURN_IF_ERROR(file_.Write(end));
  return file_.Commit();
}

Result<Reference> Reference::Open(const std::string& path) {
  Reference reference;
  RIDGE_ASSIGN_OR_RETURN(reference.file_, MappedFile::Open(path));
  const std::span<const std::byte> bytes = reference.file_.bytes();
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Bytes in(all.substr(0, all.size() - std::min<size_t>(all.size(), 8)));
  if (in.Take(kMagic.size()) != kMagic) {
    return Fail(Code::kInvalidData, "this is no reference of log-probabilities")
        .Where(path)
        .Remedy("write one: ridge perplexity --save-reference");
  }
  if (const uint32_t version = in.Raw<uint32_t>(); !in.ok() || version != kVersion) {
    return Fail(Code::kInvalidData, "the reference has a format that this build cannot read")
        .Where(path)
        .Found(fmt::format("version {}", version))
        .Expected(fmt::format("version {}", kVersion));
  }
  Bytes end(all.substr(all.size() - 8));
  if (end.Raw<uint64_t>() != XXH3_64bits(all.data(), all.size() - 8))
    return Damaged(path, "a checksum that does not fit");
  const uint32_t header_bytes = in.Raw<uint32_t>();
  const std::string_view header = in.Take(header_bytes);
  if (!in.ok()) return Damaged(path, "a header that is cut");
  uint64_t n_tokens = 0;
  RIDGE_ASSIGN_OR_RETURN(reference.about_, ParseAbout(path, header, n_tokens));
  ReferenceAbout& about = reference.about_;
  if (n_tokens > in.left() / 4) return Damaged(path, "tokens that are cut");
  about.tokens.resize(n_tokens);
  for (TokenId& id : about.tokens) id = static_cast<TokenId>(in.Raw<uint32_t>());
  if (std::ranges::any_of(about.tokens, [&](TokenId id) { return id < 0 || id >= about.vocab; }) ||
      (about.bos && (*about.bos < 0 || *about.bos >= about.vocab)))
    return Damaged(path, "a token outside the vocabulary");
  auto windows = PlanWindows(static_cast<int64_t>(about.tokens.size()), about.windows);
  if (!windows || CountScored(*windows) != about.rows) return Damaged(path, "windows that do not fit the tokens");
  for (int64_t r = 0; r < about.rows && in.ok(); r++) reference.rows_.push_back(in.Take(in.Varint()));
  if (!in.ok() || in.left() > 0) return Damaged(path, "rows that do not fit");
  return reference;
}

Result<ReferenceRow> Reference::Row(int64_t index) const {
  return DecodeRow(rows_[static_cast<size_t>(index)], about_.vocab);
}

Divergence Compare(const ReferenceRow& reference, std::span<const float> logits, TokenId target) {
  const double sum = sampling::LogSumExp(logits);
  const auto log_q = [&](TokenId id) { return static_cast<double>(logits[static_cast<size_t>(id)]) - sum; };
  Divergence d;
  d.log_probability = log_q(target);
  d.reference_log_probability = reference.target_log_probability;
  d.delta_p = Exp(d.log_probability) - Exp(d.reference_log_probability);
  d.same_top = sampling::Argmax(logits).id == reference.likeliest;
  double q_tail = 1;
  for (const KeptToken& token : reference.top) {
    const double lq = log_q(token.id);
    d.kld += Exp(token.log_probability) * (token.log_probability - lq);
    q_tail -= Exp(lq);
  }
  if (reference.tail_mass <= 0) return d;
  // What rounding leaves of 1 - sum is no probability.
  q_tail = std::max(q_tail, 1e-15);
  const double log_p_tail = Log(reference.tail_mass), log_q_tail = Log(q_tail);
  d.kld += reference.tail_mass * (log_p_tail - log_q_tail);
  // Inside the tail: KL(p || q) = E_p[r - 1 - log r] with r = q / p, both made to sum to 1 there (Schulman, "Approximating KL divergence"): never below
  // 0, no bias, and where q is near p a far smaller spread than the plain mean of -log r.
  double n = 0, total = 0, squares = 0;
  for (const KeptToken& token : reference.samples) {
    const double log_r = log_q(token.id) - log_q_tail - (token.log_probability - log_p_tail);
    const double x = Exp(log_r) - 1 - log_r, draws = static_cast<double>(token.draws);
    n += draws, total += draws * x, squares += draws * x * x;
  }
  if (n == 0) return d;
  d.kld += reference.tail_mass * total / n;
  if (n > 1)
    d.kld_variance =
        reference.tail_mass * reference.tail_mass * std::max(0.0, squares / n - total / n * (total / n)) / (n - 1);
  return d;
}

}  // namespace ridge::lab
