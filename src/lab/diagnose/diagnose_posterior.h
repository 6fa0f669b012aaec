// Shares of the parts of a phase's time, as draws from their posterior: a walk over the simplex.
//
//   const std::vector<Factors> draws = DrawShares(evidence.decode);   // each sums to 1, none below 0
//
// Guarantee: a function of its arguments alone (the random numbers are seeded), so a diagnosis can be derived again.
#pragma once

#include <vector>

#include "lab/diagnose/diagnose.h"

namespace ridge::lab {

std::vector<Factors> DrawShares(const PhaseEvidence& evidence);  // none without a response

// What a mixture of parts would answer.
double Answer(const Factors& shares, const Factors& factors);

// How far the median answer is from that, in standard errors.
double Misfit(const Response& response, const Factors& shares);

}  // namespace ridge::lab
