// A file that may be gzip or zstd. Only this target bounds the decompressed size: a few bytes may
// stand for gigabytes of zeros.
#include <vector>

#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kReadMax = 1 << 20;
  const muster::trainer::FuzzFile file(muster::trainer::fuzz_input(data, size));
  const auto source = muster::trainer::ByteSource::open(file.path());
  MUSTER_CHECK(source.ok());
  std::vector<char> buffer(4096);
  for (size_t done = 0; done < kReadMax;) {
    const auto count = (*source)->read(buffer);
    if (!count.ok() || *count == 0) break;
    done += *count;
    MUSTER_CHECK((*source)->file_position() <= size);
  }
  return 0;
}
