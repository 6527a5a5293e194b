// Reads protobuf's wire format in place, for foreign messages (tf.train.Example, a SentencePiece
// model) of which few fields are needed and whose definitions a process cannot link twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster::trainer {

struct ProtobufField {
  uint64_t number = 0;
  std::string_view bytes;  // of strings, messages and fixed-size numbers
  bool has_bytes = false;  // a string or a message
  uint64_t value = 0;      // of a varint
};

// Iterates over the fields of one message.
class ProtobufFields {
 public:
  // `message` is a part of `whole`; offset() counts from the start of `whole`.
  ProtobufFields(std::string_view message, std::string_view whole)
      : left_(message), whole_(whole) {}

  // Returns false at the end, and if the bytes are not a message: then is_broken().
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
