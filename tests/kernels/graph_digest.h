// The digests of whole programs: a small model of random weights with every op, compiled and run through the backend's public door.
//
//   PrintGraphs({"neon"});   // one line per tensor type and one per pair of KV types: "neon graph.Q4_K 0123456789abcdef"
//
// Guarantee: the same lines on every ISA and machine, or the numerics contract is broken. A step that is refused prints the error in
// place of the hash.
#pragma once

#include <string>
#include <vector>

namespace ridge::digest {

void PrintGraphs(const std::vector<std::string>& isas);

}  // namespace ridge::digest
