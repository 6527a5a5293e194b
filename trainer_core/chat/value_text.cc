// Texts of values: Python's str(), repr() and json.dumps().
#include <algorithm>
#include <cmath>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/absl_view.h"
#include "trainer_core/chat/characters.h"
#include "trainer_core/chat/limit_error.h"
#include "trainer_core/chat/value.h"

namespace muster::trainer::chat {
namespace {

void check_size(const std::string& out) {
  if (out.size() <= kValueTextBytesMax) return;
  throw LimitError(
      absl::StrCat("the text of a list or dict exceeds ", kValueTextBytesMax, " bytes"));
}

std::string quoted_repr(std::string_view text) {
  const bool doubles =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = doubles ? '"' : '\'';
  std::string out(1, quote);
  for (const char32_t c : Characters(text)) {
    if (c == static_cast<char32_t>(quote) || c == U'\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == U'\n') {
      out += "\\n";
    } else if (c == U'\r') {
      out += "\\r";
    } else if (c == U'\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_character(c, out);
    } else {
      const auto code = static_cast<uint32_t>(c);
      absl::StrAppend(&out, code < 0x100     ? absl::StrFormat("\\x%02x", code)
                            : code < 0x10000 ? absl::StrFormat("\\u%04x", code)
                                             : absl::StrFormat("\\U%08x", code));
    }
  }
  return out + quote;
}

void append_repr(const Value& value, std::string& out);

void append_items(const List& list, std::string& out) {
  out += list.is_tuple ? '(' : '[';
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(list.items[i], out);
  }
  if (list.is_tuple && list.items.size() == 1) out += ',';
  out += list.is_tuple ? ')' : ']';
}

void append_repr(const Value& value, std::string& out) {
  check_size(out);
  if (const std::string* const text = value.as_text()) {
    out += quoted_repr(*text);
  } else if (const List* const list = value.as_list()) {
    append_items(*list, out);
  } else if (const Dict* const dict = value.as_dict()) {
    out += '{';
    for (size_t i = 0; i < dict->entries.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(dict->entries[i].first, out);
      out += ": ";
      append_repr(dict->entries[i].second, out);
    }
    out += '}';
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else if (const bool* const truth = value.get<bool>()) {
    out += *truth ? "True" : "False";
  } else if (value.is_integer()) {
    absl::StrAppend(&out, value.as_integer());
  } else if (value.is_number()) {
    out += real_repr(value.as_real());
  } else {
    throw TemplateError(absl::StrCat("a ", av(value.type_name()), " has no text"));
  }
}

void append_json_string(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  for (const char32_t c : Characters(text)) {
    const auto code = static_cast<uint32_t>(c);
    if (c == U'"' || c == U'\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == U'\n') {
      out += "\\n";
    } else if (c == U'\r') {
      out += "\\r";
    } else if (c == U'\t') {
      out += "\\t";
    } else if (c == U'\b') {
      out += "\\b";
    } else if (c == U'\f') {
      out += "\\f";
    } else if (code < 0x20 || (ensure_ascii && code >= 0x7F && code < 0x10000)) {
      absl::StrAppend(&out, absl::StrFormat("\\u%04x", code));
    } else if (ensure_ascii && code >= 0x10000) {
      const uint32_t rest = code - 0x10000;
      absl::StrAppend(
          &out, absl::StrFormat("\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF)));
    } else {
      append_character(c, out);
    }
  }
  out += '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void append(const Value& value, int64_t level) {
    check_size(out);
    if (const std::string* const text = value.as_text()) {
      append_json_string(*text, style_.ensure_ascii, out);
    } else if (const List* const list = value.as_list()) {
      append_list(*list, level);
    } else if (const Dict* const dict = value.as_dict()) {
      append_dict(*dict, level);
    } else if (const double* const real = value.get<double>()) {
      out += std::isnan(*real)   ? "NaN"
             : std::isinf(*real) ? (*real > 0 ? "Infinity" : "-Infinity")
                                 : real_repr(*real);
    } else {
      out += scalar(value);
    }
  }

  std::string out;

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* const truth = value.get<bool>()) return *truth ? "true" : "false";
    if (value.is_integer()) return absl::StrCat(value.as_integer());
    throw TemplateError(absl::StrCat("JSON has no value for ", av(value.type_name())));
  }

  void new_line(int64_t level) {
    if (style_.indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(level * style_.indent), ' ');
  }

  void separate() { out += style_.item_separator; }

  void append_list(const List& list, int64_t level) {
    out += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) separate();
      new_line(level + 1);
      append(list.items[i], level + 1);
    }
    if (!list.items.empty()) new_line(level);
    out += ']';
  }

  void append_dict(const Dict& dict, int64_t level) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::ranges::stable_sort(
          entries, [](const auto* a, const auto* b) { return less(a->first, b->first); });
    }
    out += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) separate();
      new_line(level + 1);
      const Value& key = entries[i]->first;
      if (const std::string* const text = key.as_text()) {
        append_json_string(*text, style_.ensure_ascii, out);
      } else {
        out += '"';
        out += key.get<double>() != nullptr ? real_repr(key.as_real()) : scalar(key);
        out += '"';
      }
      out += style_.key_separator;
      append(entries[i]->second, level + 1);
    }
    if (!entries.empty()) new_line(level);
    out += '}';
  }

  const JsonStyle& style_;
};

}  // namespace

std::string to_text(const Value& value) {
  if (const std::string* const text = value.as_text()) return *text;
  if (value.is_undefined()) return "";
  return to_repr(value);
}

std::string to_repr(const Value& value) {
  std::string out;
  append_repr(value, out);
  return out;
}

std::string to_json_text(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.append(value, 0);
  return std::move(writer.out);
}

}  // namespace muster::trainer::chat
