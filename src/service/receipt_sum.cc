#include "service/receipt_sum.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ridge::service {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

// Why the prompt's tokens from `token` on were computed; null: the request took no part in the prefix cache.
Json CacheMissJson(const Receipt& r) {
  if (!r.cache_miss) return nullptr;
  Json miss = {{"reason", cache::Name(r.cache_miss->reason)}, {"token", r.cache_miss->at_token}};
  miss["message"] = r.cache_miss_message ? Json(*r.cache_miss_message) : Json(nullptr);
  if (r.cache_miss->gone_ms >= 0) miss["gone_ms"] = r.cache_miss->gone_ms;
  return miss;
}

Json FirstTextMs(const Receipt& r) { return r.first_text ? Json(r.first_text->total_ms) : Json(nullptr); }

Json FirstTextParts(const Receipt& r) {
  if (!r.first_text) return nullptr;
  const FirstText& t = *r.first_text;
  return {{"receive", OrNull(t.receive_ms)},
          {"tokenize", t.tokenize_ms},
          {"queue", t.queue_ms},
          {"prefill", t.prompt_ms},
          {"decode", t.decode_ms},
          {"sample", t.sample_ms},
          {"detokenize", t.detokenize_ms},
          {"deliver", t.deliver_ms},
          {"write", OrNull(t.write_ms)},
          {"other", t.other_ms()}};
}

// By the time that each answer's decoding took; nothing where nothing was drafted.
std::optional<double> MeanGain(std::span<const Receipt> receipts) {
  double with = 0, without = 0;
  bool any = false;
  for (const Receipt& r : receipts) {
    with += r.predicted_ms;
    without += r.predicted_ms * r.speculation_gain.value_or(1);
    any = any || r.speculation_gain;
  }
  return any && with > 0 ? std::optional(without / with) : std::nullopt;
}

// What adds up however the answers came.
void AddAnswer(ReceiptSum& sum, const Receipt& r) {
  Receipt& all = sum.receipt;
  sum.decoded_n += std::max<int64_t>(0, r.predicted_n - 1);
  all.predicted_n += r.predicted_n;
  all.sample_ms += r.sample_ms;
  all.detokenize_ms += r.detokenize_ms;
  all.detokenize_after_ms += r.detokenize_after_ms;
  all.nan_logits += r.nan_logits;
  all.preemptions += r.preemptions;
  all.decode_steps += r.decode_steps;
  all.draft_ms += r.draft_ms;
  all.drafts_proposed += r.drafts_proposed;
  all.drafts_accepted += r.drafts_accepted;
  all.computed_n += r.computed_n;
  all.bytes_read += r.bytes_read;
}

void AddPrompt(Receipt& all, const Receipt& r) {
  all.tokenize_ms += r.tokenize_ms;
  all.prompt_n += r.prompt_n;
  all.cache_n += r.cache_n;
  all.prompt_chunks += r.prompt_chunks;
  all.cache_pinned_n += r.cache_pinned_n;
  if (!all.predicted_ttft_ms) all.predicted_ttft_ms = r.predicted_ttft_ms;
  if (all.cache_miss) return;  // the first one that has any
  all.cache_miss = r.cache_miss;
  all.cache_miss_message = r.cache_miss_message;
}

}  // namespace

ReceiptSum InTurn(std::span<const Receipt> turns) {
  ReceiptSum sum;
  Receipt& all = sum.receipt;
  for (const Receipt& r : turns) {
    AddAnswer(sum, r);
    AddPrompt(all, r);
    all.reason = r.reason;
    all.queue_ms += r.queue_ms;
    all.prompt_ms += r.prompt_ms;
    all.predicted_ms += r.predicted_ms;
    all.total_ms += r.total_ms;
    all.kv_pages = std::max(all.kv_pages, r.kv_pages);
    if (!all.ttft_ms) all.ttft_ms = r.ttft_ms;
    if (!all.first_text) all.first_text = r.first_text;
  }
  all.speculation_gain = MeanGain(turns);
  return sum;
}

ReceiptSum AtOnce(std::span<const Receipt> receipts, size_t answers) {
  ReceiptSum sum;
  Receipt& all = sum.receipt;
  all.reason = receipts.front().reason;
  for (size_t i = 0; i < receipts.size(); i++) {
    const Receipt& r = receipts[i];
    AddAnswer(sum, r);
    if (i % answers == 0) AddPrompt(all, r);
    all.queue_ms = std::max(all.queue_ms, r.queue_ms);
    all.prompt_ms = std::max(all.prompt_ms, r.prompt_ms);
    all.predicted_ms = std::max(all.predicted_ms, r.predicted_ms);
    all.total_ms = std::max(all.total_ms, r.total_ms);
    all.kv_pages += r.kv_pages;
    if (r.ttft_ms) all.ttft_ms = std::min(all.ttft_ms.value_or(*r.ttft_ms), *r.ttft_ms);
    if (!all.first_text) all.first_text = r.first_text;
  }
  all.speculation_gain = MeanGain(receipts);
  return sum;
}

Json ReceiptJson(const ReceiptSum& sum) {
  const Receipt& r = sum.receipt;
  std::optional<double> rate;
  if (r.predicted_ms > 0 && sum.decoded_n > 0) rate = 1000.0 * static_cast<double>(sum.decoded_n) / r.predicted_ms;
  return {{"tokenize_ms", r.tokenize_ms},
          {"queue_ms", r.queue_ms},
          {"prompt_n", r.prompt_n},
          {"prompt_ms", r.prompt_ms},
          {"prompt_per_second", OrNull(r.prompt_per_second())},
          {"prompt_chunks", r.prompt_chunks},
          {"cache_n", r.cache_n},
          {"cache_miss", CacheMissJson(r)},
          {"cache_pinned_n", r.cache_pinned_n},
          {"predicted_n", r.predicted_n},
          {"predicted_ms", r.predicted_ms},
          {"predicted_per_second", OrNull(rate)},
          {"sample_ms", r.sample_ms},
          {"detokenize_ms", r.detokenize_ms},
          {"ttft_ms", OrNull(r.ttft_ms)},
          {"predicted_ttft_ms", OrNull(r.predicted_ttft_ms)},
          {"first_text_ms", FirstTextMs(r)},
          {"first_text_parts_ms", FirstTextParts(r)},
          {"total_ms", r.total_ms},
          {"computed_n", r.computed_n},
          {"preemptions", r.preemptions},
          {"decode_steps", r.decode_steps},
          {"draft_ms", r.draft_ms},
          {"drafts_proposed", r.drafts_proposed},
          {"drafts_accepted", r.drafts_accepted},
          {"speculation_gain", OrNull(r.speculation_gain)},
          {"kv_pages", r.kv_pages},
          {"bytes_read", r.bytes_read},
          {"nan_logits", r.nan_logits}};
}

}  // namespace ridge::service
