// Logs refused tokens at a limited rate: a client that guesses tokens must not fill the log.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include <absl/strings/str_cat.h>

#include "common/time/time.h"

namespace muster::coordinator {

class RefusalLog {
 public:
  // Returns the line to log for a token from this address; nullopt if a line was logged lately.
  std::optional<std::string> note(const std::string& address, Instant now) {
    const std::lock_guard lock(mutex_);
    if (logged_at_ != Instant{} && now - logged_at_ < kEvery) {
      ++skipped_;
      return std::nullopt;
    }
    logged_at_ = now;
    std::string line =
        absl::StrCat("refused an unknown token from ", address, " on the page's port");
    if (skipped_ > 0) absl::StrAppend(&line, "; ", skipped_, " more since the last such line");
    skipped_ = 0;
    return line;
  }

 private:
  static constexpr Duration kEvery = std::chrono::seconds(10);

  std::mutex mutex_;
  Instant logged_at_{};
  uint64_t skipped_ = 0;
};

}  // namespace muster::coordinator
