#include "coordinator/shell/etcd/row_codec.h"

#include <bit>
#include <cstdint>
#include <utility>
#include <variant>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "coordinator/shell/etcd/key_changes.h"
#include "etcd/state.pb.h"

namespace muster::coordinator {
namespace {

// Room for the number of parts, and for the difference between a piece and its value.
constexpr size_t kPieceBytes = kValueBytesMax - 16;

void append_escaped(std::string_view text, std::string& key) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '_' || c == '-' || c == '.' || c == '~') {
      key += c;
    } else {
      absl::StrAppendFormat(&key, "%%%02X", byte);
    }
  }
}

// Each type has another first character, so that 7 and '7' are different keys.
void append_value(const SqliteValue& value, std::string& key) {
  if (const auto* number = std::get_if<int64_t>(&value)) {
    absl::StrAppend(&key, *number);
  } else if (const auto* real = std::get_if<double>(&value)) {
    absl::StrAppendFormat(&key, "r%016x", std::bit_cast<uint64_t>(*real));
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    key += '\'';
    append_escaped(*text, key);
  } else if (const auto* blob = std::get_if<SqliteBlob>(&value)) {
    key += 'x';
    append_escaped(blob->bytes, key);
  } else {
    key += 'n';
  }
}

void set_value(const SqliteValue& value, etcd_state::StoredValue& stored) {
  if (const auto* number = std::get_if<int64_t>(&value)) stored.set_number(*number);
  if (const auto* real = std::get_if<double>(&value)) stored.set_real(*real);
  if (const auto* text = std::get_if<std::string>(&value)) stored.set_text(*text);
  if (const auto* blob = std::get_if<SqliteBlob>(&value)) stored.set_blob(blob->bytes);
}

SqliteValue value_from(etcd_state::StoredValue& stored) {
  switch (stored.value_case()) {
    case etcd_state::StoredValue::kNumber:
      return stored.number();
    case etcd_state::StoredValue::kReal:
      return stored.real();
    case etcd_state::StoredValue::kText:
      return std::move(*stored.mutable_text());
    case etcd_state::StoredValue::kBlob:
      return SqliteBlob{std::move(*stored.mutable_blob())};
    case etcd_state::StoredValue::VALUE_NOT_SET:
      break;
  }
  return std::monostate();
}

}  // namespace

std::string name_of_row(std::string_view table, const SqliteRow& primary_key) {
  std::string key;
  append_escaped(table, key);
  for (const SqliteValue& value : primary_key) {
    key += '/';
    append_value(value, key);
  }
  return key;
}

std::string part_key(const std::string& name_of_row, size_t part) {
  return part == 0 ? name_of_row : absl::StrFormat("%s%c%06d", name_of_row, kPartMark, part);
}

std::string_view table_of(std::string_view name_of_row) {
  return name_of_row.substr(0, name_of_row.find('/'));
}

std::vector<std::string> encode_row(const SqliteRow& row) {
  etcd_state::StoredRow stored;
  for (const SqliteValue& value : row) set_value(value, *stored.add_values());
  std::string bytes = stored.SerializeAsString();
  if (bytes.size() <= kPieceBytes) return {std::move(bytes)};
  etcd_state::StoredRow head;
  head.set_parts(static_cast<uint32_t>((bytes.size() - 1) / kPieceBytes));
  std::vector<std::string> values;
  for (size_t begin = 0; begin < bytes.size(); begin += kPieceBytes)
    values.push_back(bytes.substr(begin, kPieceBytes));
  values.front().insert(0, head.SerializeAsString());
  return values;
}

absl::StatusOr<SqliteRow> decode_row(std::string_view bytes, size_t parts) {
  etcd_state::StoredRow stored;
  if (!stored.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      stored.parts() + 1 != parts)
    return absl::InvalidArgumentError("it is no complete row");
  SqliteRow row;
  for (etcd_state::StoredValue& value : *stored.mutable_values()) row.push_back(value_from(value));
  return row;
}

}  // namespace muster::coordinator
