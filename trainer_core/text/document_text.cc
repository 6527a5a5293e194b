#include "trainer_core/text/document_text.h"

#include <simdjson.h>

#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include "common/text/absl_view.h"
#include "trainer_core/data/utf8.h"
#include "trainer_core/text/field_problem.h"
#include "trainer_core/text/loose_json.h"
#include "trainer_core/text/tfrecord_chunks.h"

namespace muster::trainer {
namespace {

static_assert(Chunk::kPaddingBytes >= simdjson::SIMDJSON_PADDING);

// Returns the value of the four hexadecimal digits after "\u" at `at`; -1 if there are none.
int escape_at(std::string_view text, size_t at) {
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return -1;
  int value = 0;
  for (const char digit : text.substr(at + 2, 4)) {
    const bool is_number = digit >= '0' && digit <= '9';
    const int letter = digit | 0x20;
    if (!is_number && (letter < 'a' || letter > 'f')) return -1;
    value = 16 * value + (is_number ? digit - '0' : letter - 'a' + 10);
  }
  return value;
}

bool is_high(int unit) { return unit >= 0xD800 && unit <= 0xDBFF; }
bool is_low(int unit) { return unit >= 0xDC00 && unit <= 0xDFFF; }

// Replaces lone UTF-16 surrogates, which Python writes for undecodable bytes, by U+FFFD.
bool replace_lone_surrogates(std::string& line) {
  bool found = false;
  for (size_t i = 0; i + 1 < line.size(); ++i) {
    if (line[i] != '\\') continue;
    const int unit = escape_at(line, i);
    if (is_high(unit) && is_low(escape_at(line, i + 6))) {
      i += 11;
    } else if (is_high(unit) || is_low(unit)) {
      line.replace(i + 2, 4, "fffd");
      found = true;
      i += 5;
    } else {
      ++i;  // skip "\\": its second character must not begin the next escape
    }
  }
  return found;
}

}  // namespace

absl::Status flaw_status(Flaw flaw, const std::string& field) {
  switch (flaw) {
    case Flaw::kNone:
      break;
    case Flaw::kTooLong:
      return absl::InvalidArgumentError(absl::StrCat("is longer than ", kDocumentBytesMax,
                                                     " bytes, which is the most that is read"));
    case Flaw::kNull:
      return absl::InvalidArgumentError(absl::StrCat("field \"", field, "\" is null"));
  }
  return absl::OkStatus();
}

class TextExtractor::Json {
 public:
  // Requires: `line` is readable for Chunk::kPaddingBytes beyond its end.
  absl::StatusOr<DocumentText> field(std::string_view line, const std::string& name) {
    simdjson::dom::object object;
    error_ = parser_.parse(line.data(), line.size(), false).get(object);
    if (error_ == simdjson::SUCCESS) return text_in(object, name, name);
    if (error_ == simdjson::INCORRECT_TYPE) {
      const auto value = parser_.parse(line.data(), line.size(), false);
      const char* remedy = "";
      if (value.is_string())
        remedy = "; jq -c '{text: .}' FILE > NEW.jsonl makes one of each string";
      if (value.at(0).is_object()) {
        remedy =
            "; jq -c 'if type == \"array\" then .[] else . end' FILE > NEW.jsonl makes a line of "
            "each element of a list";
      }
      return absl::InvalidArgumentError(absl::StrCat("is JSON, but no object", remedy));
    }
    const absl::Status problem =
        absl::InvalidArgumentError(absl::StrCat("is not JSON: ", simdjson::error_message(error_)));
    // A crash of the file's writer leaves them.
    if (const size_t nul = line.find('\0'); nul != std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          "has NUL bytes (the first is byte ", nul,
          " of the line): its writer crashed, or its download is incomplete; if the rest is good, "
          "tr -d '\\000' < FILE > NEW.jsonl removes them"));
    }
    LooseObject loose;
    if (!parse_loosely(line, loose)) {
      const absl::Status known = line_problem(line);
      return known.ok() ? problem : known;
    }
    return text_loosely_in(loose, name, name);
  }

 private:
  // Returns the text of a field `name`, or of `a.b`, the field b of a. `whole` is for messages.
  absl::StatusOr<DocumentText> text_in(simdjson::dom::object object, const std::string& name,
                                       const std::string& whole) {
    simdjson::dom::element found;
    bool is_found = false;
    bool has_first = false;
    simdjson::dom::object below;
    const size_t dot = name.find('.');
    for (const auto& [key, value] : object) {
      if (key == name) {
        found = value;  // the last of duplicate keys counts, as in other parsers
        is_found = true;
      } else if (dot != std::string::npos && key == std::string_view(name).substr(0, dot)) {
        has_first = value.get(below) == simdjson::SUCCESS;
      }
    }
    if (!is_found && has_first) return text_in(below, name.substr(dot + 1), whole);
    if (!is_found) return no_field(name, object);
    std::string_view text;
    if (found.get(text) == simdjson::SUCCESS) return DocumentText{text};
    return no_string(whole, found);
  }

  absl::StatusOr<DocumentText> text_loosely_in(const LooseObject& object, const std::string& name,
                                               const std::string& whole) {
    std::string_view found;
    std::string_view below;
    const size_t dot = name.find('.');
    for (const auto& [raw_key, value] : object.members) {
      const auto key = decoded(raw_key);
      if (!key.ok()) continue;  // not the name of a field that can be requested
      if (key->text == name) {
        found = value;
      } else if (dot != std::string::npos && key->text == std::string_view(name).substr(0, dot)) {
        below = value;
      }
    }
    if (found.empty() && below.starts_with('{')) {
      LooseObject inner;
      if (parse_loosely(below, inner)) return text_loosely_in(inner, name.substr(dot + 1), whole);
    }
    if (found.empty()) return no_field_loosely(object, name);
    if (found.starts_with('"')) return decoded(found);
    simdjson::dom::element value;
    if (parse_value(found, value)) return no_string(whole, value);
    return absl::InvalidArgumentError(absl::StrCat("field \"", whole, "\" is no string"));
  }

  // Returns the error for an object without the field: of its members those count that are JSON.
  absl::Status no_field_loosely(const LooseObject& object, const std::string& name) {
    std::string members;
    simdjson::dom::element value;
    for (const auto& [key, text] : object.members) {
      if (!parse_value(key, value)) continue;
      absl::StrAppend(&members, members.empty() ? "{" : ",", av(key), ":",
                      parse_value(text, value) ? av(text) : absl::string_view("null"));
    }
    members += members.empty() ? "{}" : "}";
    simdjson::dom::object whole;
    if (parse_value(members, value) && value.get(whole) == simdjson::SUCCESS)
      return no_field(name, whole);
    return absl::NotFoundError(absl::StrCat("has no field \"", name, "\""));
  }

  // Returns whether a text is a value of JSON. `value` is valid until the next call.
  bool parse_value(std::string_view text, simdjson::dom::element& value) {
    buffer_.assign(text);
    buffer_.reserve(buffer_.size() + Chunk::kPaddingBytes);
    return value_parser_.parse(buffer_.data(), buffer_.size(), false).get(value) ==
           simdjson::SUCCESS;
  }

  // Decodes a string as it stands in the text; repairs what is not UTF-8.
  absl::StatusOr<DocumentText> decoded(std::string_view raw) {
    std::string_view text;
    buffer_.assign(raw);
    if (parse_buffer(text)) return DocumentText{text};
    if (error_ != simdjson::UTF8_ERROR && error_ != simdjson::STRING_ERROR)
      return absl::InvalidArgumentError(
          absl::StrCat("is not JSON: ", simdjson::error_message(error_)));
    buffer_ = repair_utf8(raw);
    replace_lone_surrogates(buffer_);
    if (parse_buffer(text)) return DocumentText{text, /*had_invalid_utf8=*/true};
    return absl::InvalidArgumentError(
        absl::StrCat("is not JSON: ", simdjson::error_message(error_)));
  }
  bool parse_buffer(std::string_view& text) {
    buffer_.reserve(buffer_.size() + Chunk::kPaddingBytes);
    error_ = value_parser_.parse(buffer_.data(), buffer_.size(), false).get(text);
    return error_ == simdjson::SUCCESS;
  }

  simdjson::dom::parser parser_;
  simdjson::dom::parser value_parser_;  // holds the decoded text
  std::string buffer_;
  simdjson::error_code error_ = simdjson::SUCCESS;
};

TextExtractor::TextExtractor(std::string field)
    : field_(std::move(field)), json_(std::make_unique<Json>()) {}
TextExtractor::~TextExtractor() = default;

absl::StatusOr<DocumentText> TextExtractor::text_of(const Chunk& chunk, const Record& record,
                                                    InputFormat format) {
  if (record.flaw != Flaw::kNone) return flaw_status(record.flaw, field_);
  auto document = read(chunk.text(record), format);
  if (!document.ok() || document->text.find('\0') == std::string_view::npos) return document;
  // A crash of a file's writer leaves NUL bytes; JSON has them as \u0000.
  repaired_ =
      absl::StrReplaceAll(av(document->text), {{absl::string_view("\0", 1), "\xEF\xBF\xBD"}});
  document->text = repaired_;
  document->had_nul = true;
  return document;
}

absl::StatusOr<DocumentText> TextExtractor::read(std::string_view record, InputFormat format) {
  if (format == InputFormat::kJsonLines) return json_->field(record, field_);
  std::string_view text = record;
  if (format == InputFormat::kTfRecord) {
    const auto data = record_data(record);
    if (!data.ok()) return data.status();
    const auto value = bytes_feature(*data, field_);
    if (!value.ok()) return value.status();
    text = *value;
  }
  if (scan_utf8(text).invalid_bytes == 0) return DocumentText{text};
  repaired_ = repair_utf8(text);
  return DocumentText{repaired_, /*had_invalid_utf8=*/true};
}

}  // namespace muster::trainer
