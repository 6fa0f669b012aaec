// What a search found, as JSON and as text.
#include <fmt/format.h>

#include "lab/statistics.h"
#include "text_table.h"
#include "tune_search.h"

namespace ridge::app {
namespace {

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json QualityJson(const std::optional<TuneQuality::Found>& found) {
  if (!found) return nullptr;
  return {{"same_top", found->same_top.share},
          {"same_top_low", found->same_top.low},
          {"n_positions", found->same_top.positions},
          {"mean_kld", found->mean_kld}};
}

}  // namespace

Json Tuning::Evidence() const {
  Json knobs = Json::array(), left = Json::array();
  for (const Knob& s : searched_) {
    Json values = Json::array();
    const auto& entries = s.elimination.entries();
    for (size_t i = 0; i < entries.size(); i++) {
      const auto& e = entries[i];
      values.push_back({{"value", e.value},
                        {"state", i == s.elimination.present() ? "present" : std::string(lab::Name(e.state))},
                        {"ratio", e.ratios.empty() ? Json(nullptr) : Json(lab::Median(e.ratios))},
                        {"ratio_low", e.interval ? Json(e.interval->low) : Json(nullptr)},
                        {"ratio_high", e.interval ? Json(e.interval->high) : Json(nullptr)},
                        {"confidence", e.interval ? Json(e.interval->confidence) : Json(nullptr)},
                        {"pairs", e.ratios},
                        {"ttft_ms", OrNull(s.ttft_ms[i])},
                        {"gap_ms", OrNull(s.gap_ms[i])},
                        {"quality", QualityJson(s.quality[i])},
                        {"refused", s.refused[i].empty() ? Json(nullptr) : Json(s.refused[i])}});
    }
    knobs.push_back({{"setting", s.field},
                     {"phase", s.phase},
                     {"present", entries[s.elimination.present()].value},
                     {"chosen", entries[s.chosen].value},
                     {"because", s.because},
                     {"values", std::move(values)}});
  }
  for (const auto& [what, why] : left_) left.push_back({{"setting", what}, {"reason", why}});
  return {{"searched", std::move(knobs)},
          {"not_searched", std::move(left)},
          {"constraints",
           {{"max_memory_bytes", c_.memory_bytes ? Json(*c_.memory_bytes) : Json(nullptr)},
            {"max_ttft_ms", OrNull(c_.ttft_ms)},
            {"max_gap_ms", OrNull(c_.gap_ms)},
            {"min_quality", OrNull(c_.quality)}}},
          {"quality_measured", quality_ ? Json(quality_->About()) : Json(nullptr)},
          {"n_prompt", c_.prompt},
          {"prefill_ts", 1 / token_s_},
          {"decode_ts", 1 / step_s_},
          {"ttft_ms", 1e3 * token_s_ * static_cast<double>(c_.prompt)},
          {"slowest_gap_ms", 1e3 * slowest_step_s_},
          {"quiet", quiet_.quiet},
          {"quiet_reasons", quiet_.reasons},
          {"problems", problems_}};
}

std::string Tuning::Text() const {
  std::string text;
  if (quality_) text += "quality: " + quality_->About() + "\n\n";
  for (const Knob& s : searched_) {
    text += fmt::format("{} ({}):\n", s.field, s.phase);
    std::vector<TextTable::Column> columns = {
        {"value"}, {"time with / without", true}, {"interval", true}, {"pairs", true}};
    const bool quality = std::ranges::any_of(s.quality, [](const auto& q) { return q.has_value(); });
    if (quality) columns.push_back({"same next token", true});
    columns.push_back({"verdict"});
    TextTable table(columns);
    const auto& entries = s.elimination.entries();
    for (size_t i = 0; i < entries.size(); i++) {
      const auto& e = entries[i];
      std::vector<std::string> row = {
          e.value, e.ratios.empty() ? "-" : fmt::format("{:.3f}", lab::Median(e.ratios)),
          e.interval ? fmt::format("{:.3f} to {:.3f}", e.interval->low, e.interval->high) : "-",
          std::to_string(e.ratios.size())};
      if (quality)
        row.push_back(s.quality[i] ? fmt::format("{:.1f} %, at least {:.1f} %", 100 * s.quality[i]->same_top.share,
                                                 100 * s.quality[i]->same_top.low)
                                   : "-");
      row.push_back(i == s.elimination.present() ? "present"
                    : !s.refused[i].empty()      ? "refused: " + s.refused[i]
                                                 : std::string(lab::Name(e.state)));
      table.Row(std::move(row));
    }
    text += table.Text() + fmt::format("{}: {}\n\n", entries[s.chosen].value, s.because);
  }
  text += fmt::format("chosen: -t {} -ub {}", chosen_.threads, chosen_.chunk);
  if (Searched("cache")) text += fmt::format(" -ctk {} -ctv {}", backend::Name(chosen_.k), backend::Name(chosen_.v));
  if (Searched("flash")) text += fmt::format(" -fa {}", chosen_.flash ? "on" : "off");
  if (chosen_.speculation != engine::Speculation::kOff)
    text += fmt::format(" --spec {}", engine::Name(chosen_.speculation));
  if (files_.size() > 1) text += " of " + chosen_file();
  text += fmt::format(": prefill {:.1f}, decode {:.1f} tokens/s\n", 1 / token_s_, 1 / step_s_);
  for (const std::string& r : quiet_.reasons) text += "the machine was not quiet: " + r + "\n";
  for (const auto& [what, why] : left_) text += fmt::format("not searched: {}: {}\n", what, why);
  return text;
}

}  // namespace ridge::app
