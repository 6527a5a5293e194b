// The rendezvous store's wire format: how ranks find each other. The worker that holds rank 0 serves a small
// key-value store over TCP before any rank exists, so no port is ever raced for; every rank of the job is its
// client (Gloo's rendezvous today, NCCL's unique id later). Keys of one launch begin with its scope,
// "<job>/<attempt>/", so that a stale rank meets nobody.
//
// A connection carries frames, each answered before the next is sent. All integers little endian.
//
//   request:   u32 magic "MRV1" | u8 op | u32 key_bytes | u32 value_bytes | key | value
//   response:  u32 magic "MRV1" | u8 ok | u32 value_bytes | value
//
//   SET   stores value at key (last write wins); the response is empty.
//   GET   waits until key is there, then answers with its value. The request's value is the wait in
//         milliseconds as a decimal string; when it runs out: ok = 0 and a sentence as the value.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::rendezvous {

enum class Op : uint8_t { kSet = 1, kGet = 2 };

constexpr uint32_t kMagic = 0x3156524D;  // "MRV1"
constexpr size_t kRequestHeaderBytes = 13;
constexpr size_t kResponseHeaderBytes = 9;
constexpr uint32_t kKeyBytesMax = 1024;
constexpr uint32_t kValueBytesMax = 1 << 20;  // addresses of a full mesh of thousands of ranks fit

struct RequestHeader {
  Op op = Op::kSet;
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
};
struct ResponseHeader {
  bool ok = false;
  uint32_t value_bytes = 0;
};

// Whole frames, ready to be written. Requires sizes within the bounds above.
std::string encode_request(Op op, std::string_view key, std::string_view value);
std::string encode_response(bool ok, std::string_view value);

// InvalidArgument for another magic, an unknown op, or a size over its bound.
absl::StatusOr<RequestHeader> decode_request_header(
    const std::array<char, kRequestHeaderBytes>& bytes);
absl::StatusOr<ResponseHeader> decode_response_header(
    const std::array<char, kResponseHeaderBytes>& bytes);

}  // namespace muster::rendezvous
