// Statistics of repeated timings, without assumptions about their distribution.
//
//   Median({1, 9, 2}) == 2        MedianInterval(samples)->low
//
// Guarantee: an interval says the confidence that it really has, which with few samples is less than what one would like.
#pragma once

#include <optional>
#include <vector>

namespace ridge::lab {

double Median(std::vector<double> samples);  // 0 of none
// Between the smallest (q = 0) and the largest (q = 1), with straight lines between neighbours; 0 of none.
double Quantile(std::vector<double> samples, double q);

// Between two order statistics lies the median of what was sampled from, with at least this probability.
struct Interval {
  double low = 0, high = 0;
  double confidence = 0;
};
// The narrowest pair of ranks, equally far from both ends, with a confidence of 95 %, or the smallest and the largest sample where all of them have
// less (5 samples: 93.75 %). nullopt for fewer than two. Source: the binomial test of the median (Conover, Practical Nonparametric Statistics, 3.2).
std::optional<Interval> MedianInterval(std::vector<double> samples);

// The two latest samples differ by at most `tolerance` of the larger: what a warm-up waits for.
bool IsSteady(const std::vector<double>& samples, double tolerance);

}  // namespace ridge::lab
