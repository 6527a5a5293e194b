// The wire format of the rendezvous store, through which ranks find each other. The worker of rank
// 0 serves a small key-value store over TCP before any rank starts, so there is no race for a port;
// every rank of the job is a client (Gloo uses the store as its rendezvous, and NCCL's unique id is
// exchanged through it). The keys of one launch begin with its scope, "<job>/<attempt>/", so that
// stale ranks cannot meet current ones.
//
// A connection carries frames; a client sends its next request after the response to the previous
// one. Integers are little endian.
//
//   request:   u32 magic "MRV1" | u8 op | u32 key_bytes | u32 value_bytes | key | value
//   response:  u32 magic "MRV1" | u8 ok | u32 value_bytes | value
//
//   SET   stores value at key (last write wins); the response is empty.
//   GET   waits until key exists, then returns its value. The request's value is the timeout in
//         milliseconds as a decimal string; on timeout ok = 0 and the value is an error message.
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
// Fits the addresses of a full mesh of thousands of ranks.
constexpr uint32_t kValueBytesMax = 1 << 20;

struct RequestHeader {
  Op op = Op::kSet;
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
};
struct ResponseHeader {
  bool ok = false;
  uint32_t value_bytes = 0;
};

// Return complete frames, ready to be written. Require sizes within the bounds above.
std::string encode_request(Op op, std::string_view key, std::string_view value);
std::string encode_response(bool ok, std::string_view value);

// Return InvalidArgument for another magic, an unknown op, or a size above its bound.
absl::StatusOr<RequestHeader> decode_request_header(
    const std::array<char, kRequestHeaderBytes>& bytes);
absl::StatusOr<ResponseHeader> decode_response_header(
    const std::array<char, kResponseHeaderBytes>& bytes);

}  // namespace muster::rendezvous
