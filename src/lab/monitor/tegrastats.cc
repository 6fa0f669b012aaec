// tegrastats of JetPack 4 (L4T 32) to 7 (L4T 38, 39). The order of tokens varies between boards and releases, so each is known by its own shape:
//
//   [MM-DD-YYYY HH:MM:SS] RAM u/tMB (lfb nxsMB) [SWAP u/tMB (cached cMB)] [IRAM u/tkB(lfb zkB)] CPU [p%@MHz,off,…]
//   EMC_FREQ p%[@MHz] GR3D_FREQ p%[@MHz | @[MHz,…]] NAME MHz | NAME off | NAME p%@MHz | MTS fg p% bg p%
//   NAME@tempC | NAME now/average[mW…]
#include <algorithm>

#include "lab/monitor/recorded.h"

namespace ridge::lab {
namespace {

// "12.5%" and the like: the number before `unit`, which ends the text.
std::optional<double> Before(std::string_view text, std::string_view unit) {
  if (!text.ends_with(unit)) return {};
  return ToNumber(text.substr(0, text.size() - unit.size()));
}

struct Pair {
  double used, total;
};
std::optional<Pair> ParsePair(std::string_view text, std::string_view unit) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return {};
  const auto used = ToNumber(text.substr(0, slash)), total = Before(text.substr(slash + 1), unit);
  if (!used || !total) return {};
  return Pair{*used, *total};
}

bool IsDate(std::string_view w) { return w.size() == 10 && w[2] == '-' && w[5] == '-'; }
bool IsClock(std::string_view w) { return w.size() == 8 && w[2] == ':' && w[5] == ':'; }

std::vector<std::string_view> SplitAt(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

class Line {
 public:
  explicit Line(std::string_view line) : words_(Words(line)) {}

  std::optional<Row> Parse() {
    if (words_.size() >= 2 && IsDate(words_[0]) && IsClock(words_[1])) {
      row_.time = std::string(words_[0]) + " " + std::string(words_[1]);
      at_ = 2;
    }
    while (at_ < words_.size()) {
      const size_t before = at_;
      if (!Token()) {
        at_ = before + 1;
        row_.unknown.emplace_back(words_[before]);
      }
    }
    if (row_.Find("ram_used_mb") == nullptr) return {};
    Total();
    return std::move(row_);
  }

 private:
  std::string_view Next() const { return at_ + 1 < words_.size() ? words_[at_ + 1] : std::string_view(); }
  bool Take(size_t words) {
    at_ += words;
    return true;
  }

  // One token at the words from at_; false: not known.
  bool Token() {
    const std::string_view word = words_[at_], next = Next();
    if (word == "RAM") return Memory("ram");
    if (word == "SWAP") return Memory("swap");
    if (word == "IRAM") return Iram();
    if (word == "MTS") return Mts();
    if ((word == "CPU" || word == "cpu") && next.starts_with('[')) return Cpu(next);
    if (word.find('@') != std::string_view::npos && word.ends_with('C') && !word.starts_with('@'))
      return Temperature(word);
    if (next.empty() || ToNumber(word)) return false;
    return Rail(word, next) || Engine(word, next);
  }

  bool Memory(const std::string& name) {
    const auto pair = ParsePair(Next(), "MB");
    if (!pair) return false;
    row_.Add(name + "_used_mb", pair->used);
    row_.Add(name + "_total_mb", pair->total);
    at_ += 2;
    if (at_ + 1 >= words_.size()) return true;
    std::string_view detail = words_[at_ + 1];
    if (!detail.ends_with(')')) return true;
    detail.remove_suffix(1);
    if (words_[at_] == "(cached") {
      if (const auto cached = Before(detail, "MB")) row_.Add(name + "_cached_mb", *cached), at_ += 2;
    } else if (words_[at_] == "(lfb") {
      // Largest free blocks: "758x4MB", on 64 KiB pages "3x64kB".
      const size_t x = detail.find('x');
      if (x == std::string_view::npos) return true;
      const auto count = ToNumber(detail.substr(0, x)), mb = Before(detail.substr(x + 1), "MB"),
                 kb = Before(detail.substr(x + 1), "kB");
      if (!count || (!mb && !kb)) return true;
      row_.Add(name + "_lfb_blocks", *count);
      row_.Add(name + "_lfb_block_kb", mb ? *mb * 1024 : *kb);
      at_ += 2;
    }
    return true;
  }

  // "IRAM 0/252kB(lfb 252kB)", with or without a blank before the parenthesis.
  bool Iram() {
    std::string_view amount = Next();
    size_t words = 2;
    if (amount.ends_with("(lfb"))
      amount.remove_suffix(4);
    else if (at_ + 2 < words_.size() && words_[at_ + 2] == "(lfb")
      words = 3;
    else
      words = 1;
    const auto pair = ParsePair(amount, "kB");
    if (!pair) return false;
    row_.Add("iram_used_kb", pair->used);
    row_.Add("iram_total_kb", pair->total);
    if (words > 1 && at_ + words < words_.size()) {
      if (const auto lfb = Before(words_[at_ + words], "kB)")) row_.Add("iram_lfb_kb", *lfb), words++;
    }
    return Take(std::max<size_t>(words, 2));
  }

  bool Mts() {
    if (at_ + 4 >= words_.size() || words_[at_ + 1] != "fg" || words_[at_ + 3] != "bg") return false;
    const auto fg = Before(words_[at_ + 2], "%"), bg = Before(words_[at_ + 4], "%");
    if (!fg || !bg) return false;
    row_.Add("mts_fg_percent", *fg);
    row_.Add("mts_bg_percent", *bg);
    return Take(5);
  }

  // "[2%@1479,off,0%@102]"; old boards: "[2%,0%]@1479".
  bool Cpu(std::string_view list) {
    const size_t close = list.find(']');
    if (close == std::string_view::npos) return false;
    std::optional<double> common;
    if (const std::string_view rest = list.substr(close + 1); !rest.empty()) {
      common = rest.starts_with('@') ? ToNumber(rest.substr(1)) : std::nullopt;
      if (!common) return false;
    }
    struct Core {
      std::optional<double> use, mhz;
    };
    std::vector<Core> cores;
    for (const std::string_view core : SplitAt(list.substr(1, close - 1), ',')) {
      if (core == "off") {
        cores.push_back({});
        continue;
      }
      const size_t at = core.find('@');
      const auto use = Before(core.substr(0, at), "%");
      const auto mhz = at == std::string_view::npos ? common : ToNumber(core.substr(at + 1));
      if (!use || (at != std::string_view::npos && !mhz)) return false;
      cores.push_back({use, mhz});
    }
    for (size_t i = 0; i < cores.size(); i++) {
      const std::string name = "cpu" + std::to_string(i);
      row_.Add(name + "_use_percent", cores[i].use, cores[i].use ? "" : "core is off");
      row_.Add(name + "_mhz", cores[i].mhz, cores[i].mhz ? "" : cores[i].use ? "not told" : "core is off");
    }
    return Take(2);
  }

  // "cpu@62.843C", "GPU@-256C": that value is what the driver gives for a sensor that is off.
  bool Temperature(std::string_view word) {
    const size_t at = word.find('@');
    const std::string name = "temp_" + FieldName(word.substr(0, at));
    std::vector<std::optional<double>> values;
    for (const std::string_view part : SplitAt(word.substr(at + 1), '/')) {
      const auto value = Before(part, "C");
      if (!value) return false;
      values.push_back(value);
    }
    for (size_t i = 0; i < values.size(); i++) {
      const bool off = *values[i] <= -256;
      row_.Add(name + (i == 0 ? "_c" : "_second_c"), off ? std::nullopt : values[i], off ? "sensor is off" : "");
    }
    return Take(1);
  }

  // "VDD_IN 3913mW/3922mW": now and average; JetPack 4 without units, JetPack 7 with a third figure.
  bool Rail(std::string_view word, std::string_view next) {
    const std::vector<std::string_view> parts = SplitAt(next, '/');
    if (parts.size() < 2 || parts.size() > 3) return false;
    std::vector<double> mw;
    for (const std::string_view part : parts) {
      const auto value = part.ends_with("mW") ? Before(part, "mW") : ToNumber(part);
      if (!value) return false;
      mw.push_back(*value);
    }
    const std::string name = "power_" + FieldName(word);
    row_.Add(name + "_mw", mw[0]);
    row_.Add(name + "_average_mw", mw[1]);
    if (mw.size() > 2) row_.Add(name + "_third_mw", mw[2]);
    // An input rail is the whole board; the others are parts of it.
    if (word.ends_with("_IN") || word == "VIN") {
      input_ = mw[0];
      input_name_ = std::string(word);
    } else if (word != "NC") {
      rails_++;
      sum_ += mw[0];
    }
    return Take(2);
  }

  // "EMC_FREQ 3%@204", "GR3D_FREQ 12%@[1300,1300]", "GR3D_FREQ @[1575,1575]", "VIC off", "APE 25".
  bool Engine(std::string_view word, std::string_view next) {
    std::string name = FieldName(word);
    if (name.ends_with("_freq")) name.resize(name.size() - 5);
    if (next == "off") {
      row_.Add(name + "_mhz", {}, "engine is off");
      return Take(2);
    }
    const size_t at = next.find('@');
    const std::string_view use = next.substr(0, at);
    const auto percent = Before(use, "%");
    std::vector<double> mhz;
    if (at != std::string_view::npos) {
      std::string_view list = next.substr(at + 1);
      if (list.starts_with('[') && list.ends_with(']')) list = list.substr(1, list.size() - 2);
      for (const std::string_view part : SplitAt(list, ',')) {
        const auto value = ToNumber(part);
        if (!value) return false;
        mhz.push_back(*value);
      }
      if (!use.empty() && !percent) return false;
    } else if (!percent) {
      const auto value = ToNumber(next);
      if (!value) return false;
      mhz.push_back(*value);
    }
    if (percent)
      row_.Add(name + "_use_percent", *percent);
    else if (at != std::string_view::npos)
      row_.Add(name + "_use_percent", {}, "not told by this board");
    for (size_t i = 0; i < mhz.size(); i++)
      row_.Add(mhz.size() == 1 ? name + "_mhz" : name + "_" + std::to_string(i) + "_mhz", mhz[i]);
    return Take(2);
  }

  // A total is not a sum that contains itself.
  void Total() {
    if (input_) {
      row_.Add("power_total_mw", *input_);
      row_.AddText("power_total_from", "rail " + input_name_);
    } else if (rails_ > 0) {
      row_.Add("power_total_mw", sum_);
      row_.AddText("power_total_from", "sum of " + std::to_string(rails_) + " rails");
    }
  }

  std::vector<std::string_view> words_;
  size_t at_ = 0;
  Row row_;
  std::optional<double> input_;
  std::string input_name_;
  int rails_ = 0;
  double sum_ = 0;
};

}  // namespace

std::optional<Row> ParseTegrastats(std::string_view line) {
  return line.size() > kMostSampleBytes ? std::nullopt : Line(line).Parse();
}

}  // namespace ridge::lab
