// The quality floor of `ridge tune`: how often a candidate finds the same next token likeliest as the best one does.
//
//   RIDGE_ASSIGN_OR_RETURN(TuneQuality quality, TuneQuality::Create(best));    // best: the largest file, f16 KV, flash attention
//   RIDGE_ASSIGN_OR_RETURN(TuneQuality::Found found, quality.Of(candidate));   // found.same_top.low: proved with 95 %
//
// The best one answers the lab's fixed prompts (English and Chinese, greedily); prompts and answers together are the texts on which both are compared,
// token by token. Guarantees: the same texts for all candidates; what differs in vocabulary is refused. It measures distance from the best
// candidate and nothing else: whether that one is good is for `ridge perplexity` and people to say.
#pragma once

#include <string>
#include <vector>

#include "base/token_id.h"
#include "lab/planning/tune.h"
#include "service/runtime.h"

namespace ridge::app {

class TuneQuality {
 public:
  struct Found {
    lab::Share same_top;
    double mean_kld = 0;  // nats
  };

  static Result<TuneQuality> Create(service::RuntimeOptions best);
  Result<Found> Of(service::RuntimeOptions candidate) const;
  Found Same() const;  // of the best one itself, which needs no measuring

  // "10 texts of 812 tokens: ..."
  std::string About() const;
  const std::string& best() const { return best_; }  // path

 private:
  struct Text {
    std::vector<TokenId> ids;
    std::vector<std::string> rows;  // of the best one, one a position but the last: see EncodeRow
  };
  std::string best_, vocab_hash_;
  std::vector<Text> texts_;
};

}  // namespace ridge::app
