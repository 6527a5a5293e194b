// Extracts the text of a record: the record itself, a field of a JSON object, or a feature of a
// tf.train.Example.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "trainer_core/text/chunk.h"

namespace muster::trainer {

// The maximum number of fields, features or columns that an error message lists, and the maximum
// bytes of each name that it shows.
constexpr size_t kNamesShown = 8;
constexpr size_t kNameBytesShown = 40;

// The text of a document, and what was replaced by U+FFFD in it.
struct DocumentText {
  std::string_view text;  // well-formed UTF-8 without NUL; valid until the next call of text_of()
  bool had_invalid_utf8 = false;
  bool had_nul = false;

  bool is_repaired() const { return had_invalid_utf8 || had_nul; }
  // Returns a verb phrase about the repaired flaw, whose subject is the document: "has NUL
  // characters"; "" if there was none.
  std::string_view flaw() const {
    return had_invalid_utf8 ? "is no valid UTF-8" : had_nul ? "has NUL characters" : "";
  }
};

// Extracts texts. Owns a JSON parser and the last repaired text, so it is not thread-safe.
class TextExtractor {
 public:
  // `field` is the name of the field with the text, in formats other than plain text. In JSON "a.b"
  // is the field b of the object a, unless a field has that name. Other fields need not be valid
  // JSON values (loose_json.h).
  explicit TextExtractor(std::string field);
  ~TextExtractor();
  TextExtractor(const TextExtractor&) = delete;
  TextExtractor& operator=(const TextExtractor&) = delete;

  // Returns the text of a record. An error concerns this record only; its message continues a
  // sentence about the record: "is not JSON: …", "has no field "text"; it has "id", "url"".
  absl::StatusOr<DocumentText> text_of(const Chunk& chunk, const Record& record,
                                       InputFormat format);

 private:
  class Json;

  absl::StatusOr<DocumentText> read(std::string_view record, InputFormat format);

  const std::string field_;
  std::unique_ptr<Json> json_;
  std::string repaired_;
};

// Returns InvalidArgument for a record with a flaw, as text_of().
absl::Status flaw_status(Flaw flaw, const std::string& field);

// Returns the value of the bytes feature `name` of a serialized tf.train.Example. Returns an error
// with the problem and the byte if there is no such feature, or if it does not have exactly one
// value. Reads protobuf's wire format (https://protobuf.dev/programming-guides/encoding) directly,
// because libsentencepiece and Arrow contain protobuf libraries of their own, and a third copy in
// the process would conflict.
absl::StatusOr<std::string_view> bytes_feature(std::string_view example, std::string_view name);

}  // namespace muster::trainer
