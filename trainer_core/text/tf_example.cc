// bytes_feature(). The messages are:
//
//   message Example   { Features features = 1; }
//   message Features  { map<string, Feature> feature = 1; }
//       an entry is a message { string key = 1; Feature value = 2; }
//   message Feature   { oneof { BytesList bytes_list = 1; FloatList float_list = 2;
//                               Int64List int64_list = 3; } }
//   message BytesList { repeated bytes value = 1; }
#include <optional>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "trainer_core/data/protobuf_fields.h"
#include "trainer_core/text/document_text.h"

namespace muster::trainer {
namespace {

// The values found on the path. A later value replaces an earlier one, as protobuf specifies.
struct Found {
  std::vector<std::string_view> names;
  std::optional<std::string_view> feature;
};

absl::Status not_an_example(const ProtobufFields& fields) {
  return absl::DataLossError(
      absl::StrCat("is no tf.train.Example: broken at byte ", fields.offset(), " of it"));
}

absl::Status find_feature(std::string_view features, std::string_view example,
                          std::string_view name, Found& found) {
  ProtobufFields entries(features, example);
  ProtobufField entry;
  while (entries.next(entry)) {
    if (entry.number != 1 || !entry.has_bytes) continue;
    std::string_view key;
    std::string_view value;
    ProtobufFields parts(entry.bytes, example);
    ProtobufField part;
    while (parts.next(part)) {
      if (part.number == 1) key = part.bytes;
      if (part.number == 2) value = part.bytes;
    }
    if (parts.is_broken()) return not_an_example(parts);
    if (key == name) found.feature = value;
    if (found.names.size() < kNamesShown) found.names.push_back(key.substr(0, kNameBytesShown));
  }
  return entries.is_broken() ? not_an_example(entries) : absl::OkStatus();
}

absl::StatusOr<std::string_view> single_value(std::string_view feature, std::string_view example,
                                              std::string_view name) {
  ProtobufFields lists(feature, example);
  ProtobufField list;
  std::optional<std::string_view> value;
  size_t values = 0;
  while (lists.next(list)) {
    if (list.number != 1 || !list.has_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("feature \"", std::string(name), "\" holds numbers, not text"));
    }
    ProtobufFields items(list.bytes, example);
    ProtobufField item;
    for (; items.next(item); ++values) value = item.bytes;
    if (items.is_broken()) return not_an_example(items);
  }
  if (lists.is_broken()) return not_an_example(lists);
  if (values == 1) return *value;
  return absl::InvalidArgumentError(absl::StrCat("feature \"", std::string(name), "\" has ", values,
                                                 " values; a document is one"));
}

}  // namespace

absl::StatusOr<std::string_view> bytes_feature(std::string_view example, std::string_view name) {
  ProtobufFields top(example, example);
  ProtobufField field;
  Found found;
  while (top.next(field)) {
    if (field.number != 1 || !field.has_bytes) continue;
    if (auto status = find_feature(field.bytes, example, name, found); !status.ok()) return status;
  }
  if (top.is_broken()) return not_an_example(top);
  if (found.feature) return single_value(*found.feature, example, name);
  std::string names = absl::StrJoin(found.names, "\", \"",
                                    [](std::string* out, std::string_view n) { out->append(n); });
  return absl::NotFoundError(absl::StrCat("has no feature \"", std::string(name), "\"",
                                          names.empty() ? "" : "; it has \"", names,
                                          names.empty() ? "" : "\""));
}

}  // namespace muster::trainer
