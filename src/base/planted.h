// A sleep that is planted in one stage of a request on purpose: the proof that ledgers and diagnoses name the stage that is slow.
//
//   RIDGE_RETURN_IF_ERROR(Plant("prefill=5", stages));   // before threads begin; 5 ms
//   SleepIfPlanted(Stage::kPrefill);                     // in the stage; nothing where nothing is planted there
//
// Guarantees: nothing is planted unless Plant was called; then the stage takes at least so much longer each time that it is passed, and no other does.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ridge {

enum class Stage {
  kNone,
  kReceive,     // an HTTP request is read and understood
  kTokenize,    // template and tokenizer
  kQueue,       // it waits for the engine
  kPrefill,     // the first step of its prompt
  kDecode,      // each step after that
  kSample,      // each token that is drawn
  kDetokenize,  // each token's text
  kDeliver,     // each text's way into the answer
  kWrite,       // each time that a part of an answer is given to the socket
};
std::string_view Name(Stage stage);  // "receive", …

// "STAGE=MS", of these stages; MS above 0 and at most 10000. Not while another thread runs a stage. Errors: kUsage.
Status Plant(const std::string& what, std::span<const Stage> stages);

namespace planted {
inline Stage stage = Stage::kNone;
void Sleep();
}  // namespace planted

inline void SleepIfPlanted(Stage stage) {
  if (planted::stage == stage) [[unlikely]]
    planted::Sleep();
}

}  // namespace ridge
