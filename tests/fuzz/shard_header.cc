// A shard's header: rejected, or consistent with the size of the file.
#include "tests/fuzz/target.h"
#include "trainer_core/base/check.h"
#include "trainer_core/data/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  const std::span<const char> bytes(reinterpret_cast<const char*>(data), size);
  for (const uint64_t file_bytes : {uint64_t{size}, uint64_t{1} << 20, ~uint64_t{0}}) {
    const auto header = decode_shard_header(bytes, file_bytes);
    if (!header.ok()) continue;
    const uint64_t payload = file_bytes - kShardHeaderBytes;
    MUSTER_CHECK(header->token_count <= payload / header->token_bytes);
    MUSTER_CHECK(header->document_count <= payload / sizeof(uint64_t));
    const auto again = encode_shard_header(*header);
    MUSTER_CHECK(decode_shard_header(again, file_bytes).ok());
  }
  return 0;
}
