// What every fuzz target defines: libFuzzer's entry, which driver.cc calls, too. It returns 0; what must not be, aborts.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "trainer_core/base/check.h"
#include "trainer_core/text/byte_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace muster::trainer {

inline std::string_view fuzz_input(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// The input as a file that is not compressed, a few bytes at a time.
class FuzzSource : public ByteSource {
 public:
  explicit FuzzSource(std::string_view bytes) : left_(bytes) {}

  absl::StatusOr<size_t> read(std::span<char> out) override {
    constexpr size_t kPieceBytes = 61;
    const size_t count = std::min({left_.size(), out.size(), kPieceBytes});
    std::memcpy(out.data(), left_.data(), count);
    left_.remove_prefix(count);
    done_ += count;
    return count;
  }
  uint64_t file_position() const override { return done_; }

 private:
  std::string_view left_;
  uint64_t done_ = 0;
};

// The input as a file in memory, for what wants a path.
class FuzzFile {
 public:
  explicit FuzzFile(std::string_view bytes) : fd_(memfd_create("input", MFD_CLOEXEC)) {
    MUSTER_CHECK(fd_ >= 0 &&
                 write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  ~FuzzFile() { close(fd_); }
  FuzzFile(const FuzzFile&) = delete;
  FuzzFile& operator=(const FuzzFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  const int fd_;
};

}  // namespace muster::trainer
