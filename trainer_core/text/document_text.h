// The text of a record: itself, a field of a JSON object, or a feature of a tf.train.Example.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "trainer_core/text/chunk.h"

namespace muster::trainer {

// Names of fields, features or columns that an error message lists, and how much it shows of each.
constexpr size_t kNamesShown = 8;
constexpr size_t kNameBytesShown = 40;

struct DocumentText {
  std::string_view text;  // well-formed UTF-8; lives until the next call
  bool is_repaired = false;
};

// One thread: it keeps the JSON parser and what was repaired last.
class DocumentTexts {
 public:
  // `field` has the text in what is no plain text.
  explicit DocumentTexts(std::string field);
  ~DocumentTexts();
  DocumentTexts(const DocumentTexts&) = delete;
  DocumentTexts& operator=(const DocumentTexts&) = delete;

  // The status is a flaw of this record alone, and says which: "is not JSON: …", "has no field "text"; it has "id", "url"".
  absl::StatusOr<DocumentText> text_of(const Chunk& chunk, const Record& record,
                                       InputFormat format);

 private:
  class Json;

  const std::string field_;
  std::unique_ptr<Json> json_;
  std::string repaired_;
};

// The bytes feature `name` of a serialised tf.train.Example, which must have one value. Reads protobuf's wire format
// (https://protobuf.dev/programming-guides/encoding) directly: libsentencepiece and Arrow carry protobufs of their own, and a
// third one would be one too many in this process. The status says what is wrong and at which byte.
absl::StatusOr<std::string_view> bytes_feature(std::string_view example, std::string_view name);

}  // namespace muster::trainer
