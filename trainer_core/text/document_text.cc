#include "trainer_core/text/document_text.h"

#include <simdjson.h>

#include <utility>

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "trainer_core/data/utf8.h"
#include "trainer_core/text/tfrecord_chunks.h"

namespace muster::trainer {
namespace {

static_assert(Chunk::kPaddingBytes >= simdjson::SIMDJSON_PADDING);

absl::Status status_of(Flaw flaw, const std::string& field) {
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

std::string names_of(simdjson::dom::object object) {
  std::string names;
  size_t count = 0;
  for (const auto& [key, value] : object) {
    if (count == kNamesShown) {
      names += ", …";
      break;
    }
    absl::StrAppend(&names, count++ == 0 ? "" : ", ", "\"", av(key.substr(0, kNameBytesShown)),
                    "\"");
  }
  return names;
}

}  // namespace

class DocumentTexts::Json {
 public:
  // Requires: `line` is readable for Chunk::kPaddingBytes beyond its end.
  absl::StatusOr<std::string_view> field(std::string_view line, const std::string& name) {
    simdjson::dom::object object;
    error_ = parser_.parse(line.data(), line.size(), false).get(object);
    if (error_ == simdjson::INCORRECT_TYPE)
      return absl::InvalidArgumentError("is JSON, but no object");
    if (error_ != simdjson::SUCCESS) {
      return absl::InvalidArgumentError(
          absl::StrCat("is not JSON: ", simdjson::error_message(error_)));
    }
    simdjson::dom::element found;
    bool is_found = false;
    for (const auto& [key, value] : object) {
      if (key != name) continue;
      found = value;  // of duplicate keys the last one is used, as in other parsers
      is_found = true;
    }
    if (!is_found) {
      const std::string names = names_of(object);
      return absl::NotFoundError(
          absl::StrCat("has no field \"", name, "\"", names.empty() ? "" : "; it has ", names));
    }
    std::string_view text;
    if (found.get(text) == simdjson::SUCCESS) return text;
    return absl::InvalidArgumentError(
        absl::StrCat("field \"", name, "\" is ", found.is_null() ? "null" : "no string"));
  }

  // Returns whether the error can be repaired in the bytes of the line.
  bool is_bad_text() const {
    return error_ == simdjson::UTF8_ERROR || error_ == simdjson::STRING_ERROR;
  }

 private:
  simdjson::dom::parser parser_;
  simdjson::error_code error_ = simdjson::SUCCESS;
};

DocumentTexts::DocumentTexts(std::string field)
    : field_(std::move(field)), json_(std::make_unique<Json>()) {}
DocumentTexts::~DocumentTexts() = default;

absl::StatusOr<DocumentText> DocumentTexts::text_of(const Chunk& chunk, const Record& record,
                                                    InputFormat format) {
  if (record.flaw != Flaw::kNone) return status_of(record.flaw, field_);
  const std::string_view bytes = chunk.text(record);
  if (format == InputFormat::kJsonLines) {
    auto text = json_->field(bytes, field_);
    if (text.ok()) return DocumentText{*text, false};
    if (!json_->is_bad_text()) return text.status();
    repaired_ = repair_utf8(bytes);
    replace_lone_surrogates(repaired_);
    repaired_.reserve(repaired_.size() + Chunk::kPaddingBytes);
    text = json_->field(repaired_, field_);
    if (!text.ok()) return text.status();
    return DocumentText{*text, true};
  }
  std::string_view text = bytes;
  if (format == InputFormat::kTfRecord) {
    const auto data = record_data(bytes);
    if (!data.ok()) return data.status();
    const auto value = bytes_feature(*data, field_);
    if (!value.ok()) return value.status();
    text = *value;
  }
  if (scan_utf8(text).invalid_bytes == 0) return DocumentText{text, false};
  repaired_ = repair_utf8(text);
  return DocumentText{repaired_, true};
}

}  // namespace muster::trainer
