// Reads protobuf's wire format in place. It serves messages of other projects (tf.train.Example,
// SentencePiece's ModelProto) of which few fields are needed: their generated code may already be
// linked in through a library, and a process cannot link the same definitions twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster::trainer {

// One field of a message.
struct ProtobufField {
  uint64_t number = 0;
  std::string_view bytes;  // value of a string, a message or a fixed-size number
  bool has_bytes = false;  // the field is a string or a message
  uint64_t value = 0;      // value of a varint
};

// Iterates over the fields of one message.
class ProtobufFields {
 public:
  // Iterates over `message`, a part of `whole`; offset() is relative to the start of `whole`.
  ProtobufFields(std::string_view message, std::string_view whole)
      : left_(message), whole_(whole) {}

  // Stores the next field. Returns false at the end of the message, and if the bytes are not a
  // valid message; in the second case is_broken() returns true.
  bool next(ProtobufField& field);
  bool is_broken() const { return is_broken_; }
  size_t offset() const { return static_cast<size_t>(left_.data() - whole_.data()); }

 private:
  bool broken();
  bool take(uint64_t size, std::string_view& bytes);
  bool read_varint(uint64_t& value);

  std::string_view left_;
  std::string_view whole_;
  bool is_broken_ = false;
};

}  // namespace muster::trainer
