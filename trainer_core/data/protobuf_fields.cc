#include "trainer_core/data/protobuf_fields.h"

namespace muster::trainer {

bool ProtobufFields::next(ProtobufField& field) {
  if (left_.empty() || is_broken_) return false;
  uint64_t tag = 0;
  if (!read_varint(tag)) return broken();
  field = {};
  field.number = tag >> 3;
  uint64_t size = 0;
  switch (tag & 7) {
    case 0:
      return read_varint(field.value) || broken();
    case 1:
      return take(8, field.bytes) || broken();
    case 5:
      return take(4, field.bytes) || broken();
    case 2:
      field.has_bytes = true;
      return (read_varint(size) && take(size, field.bytes)) || broken();
    default:
      return broken();
  }
}

bool ProtobufFields::broken() {
  is_broken_ = true;
  return false;
}

bool ProtobufFields::take(uint64_t size, std::string_view& bytes) {
  if (size > left_.size()) return false;
  bytes = left_.substr(0, static_cast<size_t>(size));
  left_.remove_prefix(static_cast<size_t>(size));
  return true;
}

bool ProtobufFields::read_varint(uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(left_.front());
    left_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

}  // namespace muster::trainer
