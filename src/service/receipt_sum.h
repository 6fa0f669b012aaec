// Several receipts as one, and the names that documents give to what stands in a receipt: the only place where they are written down.
//
//   const ReceiptSum sum = InTurn(turns);   // of a chat; AtOnce: of several answers to one HTTP request
//   document.update(ReceiptJson(sum));      // prompt_n, prompt_ms, ... of `ridge run --json` and of the server's field `ridge`
//
// Guarantees: what was not measured is null, never 0. Counts add up; times add up in turn, and at once the slowest counts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "service/receipt.h"

namespace ridge::service {

struct ReceiptSum {
  Receipt receipt;
  int64_t decoded_n = 0;  // tokens after the first of each answer: those of predicted_ms
};

ReceiptSum InTurn(std::span<const Receipt> turns);  // the reason is the last one's
// `answers` of each prompt, one prompt after the other: a prompt counts once. At least one receipt.
ReceiptSum AtOnce(std::span<const Receipt> receipts, size_t answers);

nlohmann::ordered_json ReceiptJson(const ReceiptSum& sum);

}  // namespace ridge::service
