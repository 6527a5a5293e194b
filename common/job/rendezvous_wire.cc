#include "common/job/rendezvous_wire.h"

#include <bit>
#include <cstring>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::rendezvous {
namespace {

static_assert(std::endian::native == std::endian::little,
              "frames are copied as they are in memory");

void append_u32(std::string& out, uint32_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

uint32_t read_u32(const char* bytes) {
  uint32_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

absl::Status check_magic(const char* bytes) {
  if (read_u32(bytes) == kMagic) return absl::OkStatus();
  return absl::InvalidArgumentError("not a rendezvous frame (magic differs)");
}

absl::Status check_size(std::string_view what, uint32_t bytes, uint32_t bytes_max) {
  if (bytes <= bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rendezvous ", av(what), " of ", bytes,
                                                 " bytes; at most ", bytes_max, " are accepted"));
}

}  // namespace

std::string encode_request(Op op, std::string_view key, std::string_view value) {
  std::string frame;
  frame.reserve(kRequestHeaderBytes + key.size() + value.size());
  append_u32(frame, kMagic);
  frame.push_back(static_cast<char>(op));
  append_u32(frame, static_cast<uint32_t>(key.size()));
  append_u32(frame, static_cast<uint32_t>(value.size()));
  frame.append(key).append(value);
  return frame;
}

std::string encode_response(bool ok, std::string_view value) {
  std::string frame;
  frame.reserve(kResponseHeaderBytes + value.size());
  append_u32(frame, kMagic);
  frame.push_back(ok ? '\1' : '\0');
  append_u32(frame, static_cast<uint32_t>(value.size()));
  frame.append(value);
  return frame;
}

absl::StatusOr<RequestHeader> decode_request_header(
    const std::array<char, kRequestHeaderBytes>& bytes) {
  if (auto status = check_magic(bytes.data()); !status.ok()) return status;
  const auto op = static_cast<Op>(bytes[4]);
  if (op != Op::kSet && op != Op::kGet) {
    return absl::InvalidArgumentError(absl::StrCat("unknown rendezvous operation ", int{bytes[4]}));
  }
  RequestHeader header{op, read_u32(&bytes[5]), read_u32(&bytes[9])};
  if (auto status = check_size("key", header.key_bytes, kKeyBytesMax); !status.ok()) return status;
  if (auto status = check_size("value", header.value_bytes, kValueBytesMax); !status.ok())
    return status;
  return header;
}

absl::StatusOr<ResponseHeader> decode_response_header(
    const std::array<char, kResponseHeaderBytes>& bytes) {
  if (auto status = check_magic(bytes.data()); !status.ok()) return status;
  ResponseHeader header{bytes[4] != 0, read_u32(&bytes[5])};
  if (auto status = check_size("value", header.value_bytes, kValueBytesMax); !status.ok())
    return status;
  return header;
}

}  // namespace muster::rendezvous
