// Counts the bytes that this rank has written of a save, for those who wait for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

namespace muster::trainer {

// Called on one thread at a time: saves do not overlap.
class SaveMeter {
 public:
  // Shows the progress in MiB; 0 and 0: no save is in progress. The total of a save is at least 1,
  // and the written part reaches it with the last byte only.
  using Show = std::function<void(uint32_t saving_mib, uint32_t written_mib)>;
  explicit SaveMeter(Show show) : show_(std::move(show)) {}

  void begin(uint64_t bytes) {
    bytes_ = bytes;
    written_ = 0;
    show();
  }
  void add(uint64_t bytes) {
    written_ += bytes;
    show();
  }
  // This rank has written all of its part; other ranks may still write.
  void complete() { add(bytes_); }
  void end() { show_(0, 0); }

 private:
  void show() const {
    const uint64_t total = std::max<uint64_t>((bytes_ + kMebi - 1) / kMebi, 1);
    const uint64_t written = written_ >= bytes_ ? total : std::min(written_ / kMebi, total - 1);
    show_(static_cast<uint32_t>(total), static_cast<uint32_t>(written));
  }

  static constexpr uint64_t kMebi = 1 << 20;
  Show show_;
  uint64_t bytes_ = 0;
  uint64_t written_ = 0;
};

}  // namespace muster::trainer
