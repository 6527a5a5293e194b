// The entry point of every fuzz target, for libFuzzer and driver.cc. Returns 0; a violated property
// aborts.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"
#include "trainer_core/base/check.h"
#include "trainer_core/text/byte_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace muster::trainer {

inline std::string_view fuzz_input(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// The input as an uncompressed file that is read a few bytes at a time.
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

// The input as a file in memory, for functions that need a path.
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

// The input as a file in a folder, for functions that need a folder; one folder for all inputs of a
// run.
class FuzzFolder {
 public:
  // `beside`: golden files to copy next to the input, as paths below tests/golden.
  explicit FuzzFolder(std::initializer_list<std::string> beside = {}) {
    for (const std::string& name : beside) {
      const std::filesystem::path from = source_dir() + "/tests/golden/" + name;
      std::filesystem::copy(from, folder_.file(from.filename().string()));
    }
  }

  const std::string& with(const std::string& name, std::string_view bytes) const {
    write_file(folder_.file(name), std::string(bytes));
    return folder_.path();
  }

 private:
  // In memory, because thousands of inputs are written per second.
  const TempFolder folder_{"/dev/shm"};
};

}  // namespace muster::trainer
