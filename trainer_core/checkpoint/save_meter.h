// Reports the progress of this rank's part of a save to readers that wait for the save.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

namespace muster::trainer {

// The progress of one save at a time. Called by one thread at a time.
class SaveMeter {
 public:
  // Receives the size of this rank's part and the bytes written so far, in MiB; both are 0 if no
  // save is in progress. The size is at least 1, and the written part equals it only after the last
  // byte.
  using Show = std::function<void(uint32_t saving_mib, uint32_t written_mib)>;
  explicit SaveMeter(Show show) : show_(std::move(show)) {}

  // Begins a save in which this rank writes `bytes` bytes.
  void begin(uint64_t bytes) {
    bytes_ = bytes;
    written_ = 0;
    sent_ = 0;
    show();
  }
  // Adds bytes that were written.
  void add(uint64_t bytes) {
    written_ += bytes;
    show();
  }
  // Reports that this rank has written its part completely; other ranks may still be writing.
  void complete() { add(bytes_); }
  // Reports that this rank has sent `bytes` bytes of its complete part to a store. The size and the
  // written part grow alike: the program that waits sees progress, but no fixed time for a byte.
  void sent(uint64_t bytes) {
    if (written_ < bytes_ || bytes_ == 0 || bytes <= sent_) return;
    sent_ = bytes;
    show();
  }
  // Reports that no save is in progress.
  void end() {
    bytes_ = 0;
    show_(0, 0);
  }

 private:
  void show() const {
    const uint64_t total = std::max<uint64_t>((bytes_ + kMebi - 1) / kMebi, 1);
    const uint64_t written = written_ >= bytes_ ? total : std::min(written_ / kMebi, total - 1);
    const uint64_t sent = sent_ / kMebi;
    show_(static_cast<uint32_t>(total + sent), static_cast<uint32_t>(written + sent));
  }

  static constexpr uint64_t kMebi = 1 << 20;
  Show show_;
  uint64_t bytes_ = 0;
  uint64_t written_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace muster::trainer
