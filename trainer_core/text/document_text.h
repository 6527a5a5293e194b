// Extracts the text of a record: the record itself, a field of a JSON object, or a feature of a
// tf.train.Example.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "trainer_core/text/chunk.h"

namespace muster::trainer {

// The number of fields, features or columns that an error message lists, and the bytes shown of
// each.
constexpr size_t kNamesShown = 8;
constexpr size_t kNameBytesShown = 40;

struct DocumentText {
  std::string_view text;    // well-formed UTF-8; valid until the next call
  std::string_view repair;  // what was repaired, "is no valid UTF-8"; empty: nothing

  bool is_repaired() const { return !repair.empty(); }
};

// Not thread-safe: holds the JSON parser and the last repaired text.
class DocumentTexts {
 public:
  // `field` names the field that holds the text, in formats other than plain text. In JSON "a.b" is
  // the field b of the object a, unless a field has that name. Other fields need not be valid JSON
  // values (loose_json.h).
  explicit DocumentTexts(std::string field);
  ~DocumentTexts();
  DocumentTexts(const DocumentTexts&) = delete;
  DocumentTexts& operator=(const DocumentTexts&) = delete;

  // An error is a flaw of this record only, and describes it: "is not JSON: …", "has no field
  // "text"; it has "id", "url"".
  absl::StatusOr<DocumentText> text_of(const Chunk& chunk, const Record& record,
                                       InputFormat format);

 private:
  class Json;

  const std::string field_;
  std::unique_ptr<Json> json_;
  std::string repaired_;
};

// Returns the value of the bytes feature `name` of a serialized tf.train.Example. Requires that the
// feature has exactly one value. Reads
// protobuf's wire format (https://protobuf.dev/programming-guides/encoding) directly:
// libsentencepiece and Arrow bring protobufs of their own, and a third one in the process would
// conflict. Errors name the problem and the byte.
absl::StatusOr<std::string_view> bytes_feature(std::string_view example, std::string_view name);

}  // namespace muster::trainer
