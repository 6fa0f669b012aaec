#include "engine/speculation.h"

#include <algorithm>
#include <vector>

namespace ridge::engine {
namespace {

constexpr double kPriorTokens = 4;  // what an expectation counts, beside what was seen

}  // namespace

double Rate(const DraftRecord& record, double prior) {
  return (record.accepted + kPriorTokens * prior) / (record.accepted + record.refused + kPriorTokens);
}

void Count(DraftRecord& record, int64_t accepted, bool refused, double most) {
  record.accepted += static_cast<double>(accepted);
  record.refused += refused ? 1 : 0;
  if (record.accepted + record.refused > most) record.accepted /= 2, record.refused /= 2;
}

size_t DraftPolicy::Bucket(int64_t match) {
  return match < 4 ? 0 : match < 6 ? 1 : match < 10 ? 2 : match < 20 ? 3 : 4;
}

double DraftPolicy::Odds(const DraftRecord& record, int64_t match) const {
  const double m = static_cast<double>(match);
  return Rate(record, Rate(by_match_[Bucket(match)], m / (m + 4)));
}

void DraftPolicy::Choose(std::span<DraftChoice> drafts, int64_t rows, int64_t most, const StepCosts& costs) const {
  for (DraftChoice& draft : drafts) draft.take = 0;
  const std::optional<double> alone = costs.DecodeMs(rows);
  if (!alone) return;
  double tokens = static_cast<double>(rows);
  double best = kLeastGain * tokens / *alone;
  struct Next {
    DraftChoice* draft;
    int64_t take;
    double odds;  // that all tokens up to this one are accepted
  };
  std::vector<Next> next;
  for (DraftChoice& draft : drafts) {
    if (draft.most > 0) next.push_back({&draft, 0, draft.odds});
  }
  for (int64_t j = 1; j <= most && !next.empty(); j++) {
    const auto top =
        std::max_element(next.begin(), next.end(), [](const Next& a, const Next& b) { return a.odds < b.odds; });
    tokens += top->odds;
    top->take++;
    top->odds = top->take < std::min(top->draft->most, kMostDrafts) ? top->odds * top->draft->odds : 0;
    if (top->odds <= 0 && std::ranges::all_of(next, [](const Next& n) { return n.odds <= 0; })) most = j;
    const double rate = tokens / *costs.DecodeMs(rows + j);
    if (rate <= best) continue;
    best = rate;
    for (const Next& n : next) n.draft->take = n.take;
  }
}

void DraftPolicy::Learn(DraftRecord& record, int64_t match, int64_t proposed, int64_t accepted) {
  Count(record, accepted, accepted < proposed, 24);
  Count(by_match_[Bucket(match)], accepted, accepted < proposed, 96);
}

}  // namespace ridge::engine
