// index.json of token shards: rejected, or reproduced by writing the parsed index.
#include "trainer_core/data/token_index.h"

#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  static const FuzzFolder folder;
  const std::string& path = folder.with(kTokenIndexFile, fuzz_input(data, size));
  const auto index = read_token_index(path);
  if (!index.ok()) return 0;
  MUSTER_CHECK(write_token_index(path, *index).ok());
  const auto again = read_token_index(path);
  MUSTER_CHECK(again.ok()) << again.status().message();
  MUSTER_CHECK(again->tokens == index->tokens && again->shards.size() == index->shards.size());
  return 0;
}
