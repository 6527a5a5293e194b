// Frame headers of the rendezvous store: rejected, or bounded and serialized to the same bytes.
#include "common/job/rendezvous_wire.h"

#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::rendezvous;
  const std::string_view input = muster::trainer::fuzz_input(data, size);
  std::array<char, kRequestHeaderBytes> request{};
  std::array<char, kResponseHeaderBytes> response{};
  input.copy(request.data(), request.size());
  input.copy(response.data(), response.size());
  if (const auto header = decode_request_header(request); header.ok()) {
    MUSTER_CHECK(header->key_bytes <= kKeyBytesMax && header->value_bytes <= kValueBytesMax);
    const std::string frame = encode_request(header->op, std::string(header->key_bytes, 'k'),
                                             std::string(header->value_bytes, 'v'));
    MUSTER_CHECK(frame.starts_with(std::string_view(request.data(), request.size())));
  }
  if (const auto header = decode_response_header(response); header.ok()) {
    MUSTER_CHECK(header->value_bytes <= kValueBytesMax);
    const std::string frame = encode_response(header->ok, std::string(header->value_bytes, 'v'));
    MUSTER_CHECK(frame.size() == kResponseHeaderBytes + header->value_bytes);
  }
  return 0;
}
