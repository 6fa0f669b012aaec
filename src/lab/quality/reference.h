// What a model thought of a text, kept small: for each scored position the log-probabilities of its likeliest tokens, the mass of all others, and a
// sample of those, so that another model can be held against it later without the first.
//
//   RIDGE_ASSIGN_OR_RETURN(ReferenceWriter writer, ReferenceWriter::Create("f16.ref", about));   // about: a ReferenceAbout
//   writer.Add(EncodeRow(logits, target, index, about.shape)); ... writer.Commit();
//   RIDGE_ASSIGN_OR_RETURN(Reference reference, Reference::Open("f16.ref"));
//   const Divergence d = Compare(*reference.Row(0), logits, target);
//
// Guarantees: the shape chosen by default takes at most 1/50 of the 16-bit logits (vocabularies below about 13000 tokens, where the least shape is larger,
// aside). The estimate of the divergence has no bias: the tail is sampled in proportion to its probability. A damaged or foreign file is refused.
//
// File, little endian: "RIDGEREF", u32 version, u32 bytes of the JSON header, the header, u32 token ids, rows, u64 XXH3-64 of all before it.
// Row: varint bytes of what follows; f32 log-probability of the target; f32 mass of the tail; varint rank of the likeliest among the kept; varint
// number kept, each varint distance from the id before and u24 log-probability; the same for the sample, the distance twice plus one where a varint
// count follows (a token that was drawn more than once). u24: minus the log-probability in units of 2^-18.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/mmap.h"
#include "base/result.h"
#include "base/token_id.h"
#include "lab/quality/scoring.h"

struct XXH3_state_s;

namespace ridge::lab {

struct ReferenceShape {
  int64_t top = 0;      // likeliest tokens kept
  int64_t samples = 0;  // draws from the others
};
ReferenceShape DefaultShape(int64_t vocab);
uint64_t FullLogitsBytes(int64_t vocab, int64_t rows);  // 16 bits each, as llama-perplexity keeps them

struct ReferenceAbout {
  std::string model, architecture;  // for people
  int64_t vocab = 0;
  std::string vocab_hash;  // of all tokens' texts: models with another may not be compared
  std::vector<TokenId> tokens;
  WindowOptions windows;
  std::optional<TokenId> bos;  // at each window's start
  int64_t rows = 0;            // scored positions
  ReferenceShape shape;
  std::string config;  // JSON of the settings it was computed with
};
std::string TokensHash(std::span<const TokenId> tokens);  // 16 hex digits

struct KeptToken {
  TokenId id = 0;
  double log_probability = 0;
  int64_t draws = 1;
};
struct ReferenceRow {
  double target_log_probability = 0, tail_mass = 0;
  TokenId likeliest = 0;
  std::vector<KeptToken> top, samples;  // by id
};

// `index` seeds the draws, so that the same text gives the same file.
std::string EncodeRow(std::span<const float> logits, TokenId target, int64_t index, const ReferenceShape& shape);
Result<ReferenceRow> DecodeRow(std::string_view bytes, int64_t vocab);

class ReferenceWriter {
 public:
  static Result<ReferenceWriter> Create(const std::string& path, const ReferenceAbout& about);
  Status Add(std::string_view row);
  Status Commit();
  uint64_t size_bytes() const { return file_.size_bytes(); }

 private:
  explicit ReferenceWriter(AtomicFile file);
  Status Write(std::string_view bytes);
  AtomicFile file_;
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> checksum_;
  int64_t expected_rows_ = 0, rows_ = 0;
};

class Reference {
 public:
  // Errors: kInvalidData (no reference, another version, damaged), those of MappedFile.
  static Result<Reference> Open(const std::string& path);
  const ReferenceAbout& about() const { return about_; }
  Result<ReferenceRow> Row(int64_t index) const;
  uint64_t size_bytes() const { return file_.bytes().size(); }

 private:
  MappedFile file_;
  ReferenceAbout about_;
  std::vector<std::string_view> rows_;
};

// One position of another model against the reference.
struct Divergence {
  double kld = 0;                                             // KL(reference || model), in nats
  double kld_variance = 0;                                    // of the estimate, from the sampled tail
  double delta_p = 0;                                         // probability of the target, model minus reference
  double log_probability = 0, reference_log_probability = 0;  // of the target
  bool same_top = false;
};
Divergence Compare(const ReferenceRow& reference, std::span<const float> logits, TokenId target);

}  // namespace ridge::lab
