// Protobuf's wire format, read in place: for messages of others (tf.train.Example, a SentencePiece model), of which we need
// little and whose definitions a process cannot link twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster::trainer {

struct ProtobufField {
  uint64_t number = 0;
  std::string_view bytes;  // of strings, messages and fixed numbers
  bool has_bytes = false;  // a string or a message
  uint64_t value = 0;      // of a varint
};

// The fields of one message, one after the other.
class ProtobufFields {
 public:
  // `message` is a part of `whole`, from whose start offset() counts.
  ProtobufFields(std::string_view message, std::string_view whole)
      : left_(message), whole_(whole) {}

  // False at the end and where the bytes are no message: is_broken() tells.
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
