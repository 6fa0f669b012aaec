// Typed access to metadata: which stored types convert to which asked types is decided here, in one place.
#include <fmt/format.h>

#include <limits>
#include <type_traits>

#include "base/quantity.h"
#include "gguf/gguf.h"
#include "gguf/parse.h"

namespace ridge::gguf {

std::string_view Name(ValueType type) {
  switch (type) {
    case ValueType::kU8: return "u8";
    case ValueType::kI8: return "i8";
    case ValueType::kU16: return "u16";
    case ValueType::kI16: return "i16";
    case ValueType::kU32: return "u32";
    case ValueType::kI32: return "i32";
    case ValueType::kF32: return "f32";
    case ValueType::kBool: return "bool";
    case ValueType::kString: return "string";
    case ValueType::kArray: return "array";
    case ValueType::kU64: return "u64";
    case ValueType::kI64: return "i64";
    case ValueType::kF64: return "f64";
  }
  return "unknown";
}

namespace {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class T>
constexpr std::string_view kAsked = std::is_same_v<T, bool>                    ? "a bool"
                                    : std::is_same_v<T, uint64_t>              ? "an integer from 0"
                                    : std::is_same_v<T, int64_t>               ? "an integer"
                                    : std::is_same_v<T, double>                ? "a number"
                                    : std::is_same_v<T, std::string>           ? "a string"
                                    : std::is_same_v<T, std::vector<uint64_t>> ? "an array of integers from 0"
                                    : std::is_same_v<T, std::vector<int64_t>>  ? "an array of integers"
                                    : std::is_same_v<T, std::vector<double>>   ? "an array of numbers"
                                    : std::is_same_v<T, std::vector<uint8_t>>  ? "an array of bool or bytes"
                                                                               : "an array of strings";

// One stored item to T. `is_bool` tells uint8_t items that are bools from numbers. False: T cannot hold it.
template <class T, class From>
bool Convert(const From& from, bool is_bool, T& out) {
  constexpr bool kInteger = std::is_integral_v<From> && !std::is_same_v<From, bool>;
  if constexpr (std::is_same_v<From, T>) {
    out = from;
    return true;
  } else if constexpr (std::is_same_v<T, bool> && std::is_same_v<From, uint8_t>) {
    out = from != 0;
    return is_bool;
  } else if constexpr (std::is_same_v<T, uint8_t> && std::is_same_v<From, int8_t>) {
    out = static_cast<uint8_t>(from);  // raw bytes: some writers store them signed
    return true;
  } else if constexpr (kInteger && (std::is_same_v<T, uint64_t> || std::is_same_v<T, int64_t>)) {
    if (is_bool || !std::in_range<T>(from)) return false;
    out = static_cast<T>(from);
    return true;
  } else if constexpr (kInteger && std::is_same_v<T, double>) {
    out = static_cast<double>(from);
    return !is_bool;
  } else {
    return false;
  }
}

Error WrongType(const std::string& key, const Value& value, std::string_view expected) {
  return Fail(Code::kInvalidData, "metadata value has the wrong type")
      .Where("key " + Quoted(key))
      .Found(value.TypeName())
      .Expected(std::string(expected))
      .Take();
}

template <class From>
std::string Text(const From& from) {
  if constexpr (std::is_arithmetic_v<From>) {
    return fmt::format("{}", from);
  } else {
    return Quoted(from);
  }
}

template <class T>
Result<T> ScalarAs(const std::string& key, const Value& value) {
  T out{};
  std::string found;
  const bool fits = std::visit(
      [&](const auto& from) {
        using From = std::decay_t<decltype(from)>;
        if constexpr (IsVector<From>::value) {
          return false;
        } else {
          if (Convert<T>(from, false, out)) return true;
          if constexpr (std::is_integral_v<From> && !std::is_same_v<From, bool>) {
            if (std::is_integral_v<T> && !std::is_same_v<T, bool>) found = fmt::format("{} {}", value.TypeName(), from);
          }
          return false;
        }
      },
      value.data);
  if (fits) return out;
  Error error = WrongType(key, value, kAsked<T>);
  if (!found.empty()) {
    error.what = "metadata value is out of range";
    error.found = found;
  }
  return std::unexpected(std::move(error));
}

template <class Item>
Result<std::vector<Item>> ArrayAs(const std::string& key, const Value& value) {
  std::vector<Item> out;
  size_t bad = 0;
  std::string found;
  const bool fits = std::visit(
      [&](const auto& from) {
        using From = std::decay_t<decltype(from)>;
        if constexpr (!IsVector<From>::value) {
          return false;
        } else {
          const bool is_bool = value.item_type == ValueType::kBool;
          out.resize(from.size());
          for (size_t i = 0; i < from.size(); ++i) {
            Item item{};
            if (!Convert<Item>(from[i], is_bool, item)) {
              bad = i;
              found = Text(from[i]);
              return false;
            }
            out[i] = std::move(item);
          }
          return true;
        }
      },
      value.data);
  if (fits) return out;
  std::string_view expected = kAsked<std::vector<Item>>;
  if constexpr (std::is_same_v<Item, bool>) expected = "an array of bool";
  Error error = WrongType(key, value, expected);
  if (!found.empty()) {
    error.what = "metadata array holds an item that does not fit";
    error.found = fmt::format("{} with item {} = {}", value.TypeName(), bad, found);
  }
  return std::unexpected(std::move(error));
}

}  // namespace

size_t Value::length() const {
  return std::visit(
      [](const auto& held) -> size_t {
        if constexpr (IsVector<std::decay_t<decltype(held)>>::value) {
          return held.size();
        } else {
          return 1;
        }
      },
      data);
}

std::string Value::TypeName() const {
  if (type != ValueType::kArray) return std::string(Name(type));
  return fmt::format("array[{}]", Name(item_type));
}

const Value* Metadata::Find(const std::string& key) const {
  const auto at = index_.find(key);
  return at == index_.end() ? nullptr : &entries_[at->second].second;
}

Status Metadata::Add(std::string key, Value value) {
  if (!index_.emplace(key, entries_.size()).second) {
    return Fail(Code::kAlreadyExists, "metadata key appears twice").Where("key " + Quoted(key)).Expected("unique keys");
  }
  entries_.emplace_back(std::move(key), std::move(value));
  return {};
}

template <class T>
Result<T> Metadata::Get(const std::string& key) const {
  const Value* value = Find(key);
  if (value == nullptr) {
    return Fail(Code::kNotFound, "metadata key is missing")
        .Where("key " + Quoted(key))
        .Expected(std::string(kAsked<T>));
  }
  if constexpr (IsVector<T>::value) {
    return ArrayAs<typename T::value_type>(key, *value);
  } else {
    return ScalarAs<T>(key, *value);
  }
}

template <class T>
Result<T> Metadata::GetOr(const std::string& key, T fallback) const {
  if (Find(key) == nullptr) return fallback;
  return Get<T>(key);
}

template <class T>
Result<std::vector<T>> Metadata::GetPerLayer(const std::string& key, size_t n, std::optional<T> fallback) const {
  const Value* value = Find(key);
  if (value == nullptr && fallback) return std::vector<T>(n, *fallback);
  if (value == nullptr || value->type != ValueType::kArray) {
    RIDGE_ASSIGN_OR_RETURN(T item, Get<T>(key));
    return std::vector<T>(n, item);
  }
  if (value->length() != n) {
    return Fail(Code::kInvalidData, "metadata array has the wrong length")
        .Where("key " + Quoted(key))
        .Found(Count(value->length(), "item"))
        .Expected(fmt::format("{}, one per layer, or a scalar", n));
  }
  return ArrayAs<T>(key, *value);
}

Result<const std::vector<std::string>*> Metadata::Strings(const std::string& key) const {
  const Value* value = Find(key);
  if (value == nullptr) {
    return Fail(Code::kNotFound, "metadata key is missing").Where("key " + Quoted(key)).Expected("an array of strings");
  }
  const auto* strings = std::get_if<std::vector<std::string>>(&value->data);
  if (strings == nullptr) return std::unexpected(WrongType(key, *value, "an array of strings"));
  return strings;
}

#define RIDGE_METADATA_GET(T)                                    \
  template Result<T> Metadata::Get<T>(const std::string&) const; \
  template Result<T> Metadata::GetOr<T>(const std::string&, T) const;
RIDGE_METADATA_GET(uint64_t)
RIDGE_METADATA_GET(int64_t)
RIDGE_METADATA_GET(double)
RIDGE_METADATA_GET(bool)
RIDGE_METADATA_GET(std::string)
RIDGE_METADATA_GET(std::vector<uint64_t>)
RIDGE_METADATA_GET(std::vector<int64_t>)
RIDGE_METADATA_GET(std::vector<double>)
RIDGE_METADATA_GET(std::vector<uint8_t>)
RIDGE_METADATA_GET(std::vector<std::string>)
#undef RIDGE_METADATA_GET

#define RIDGE_METADATA_PER_LAYER(T) \
  template Result<std::vector<T>> Metadata::GetPerLayer<T>(const std::string&, size_t, std::optional<T>) const;
RIDGE_METADATA_PER_LAYER(uint64_t)
RIDGE_METADATA_PER_LAYER(int64_t)
RIDGE_METADATA_PER_LAYER(double)
RIDGE_METADATA_PER_LAYER(bool)
RIDGE_METADATA_PER_LAYER(std::string)
#undef RIDGE_METADATA_PER_LAYER

}  // namespace ridge::gguf
