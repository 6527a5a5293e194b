// Progress through the bytes of a text file: fraction, rate and time left, on stderr.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/progress_bar.h"
#include "common/time.h"

namespace muster::cli {

class TextProgress {
 public:
  // `what` names the command, `afterwards` what it does once everything is read.
  TextProgress(std::string what, std::string afterwards);

  // For trainer_core's ProgressFn; refers to this object.
  std::function<void(uint64_t done, uint64_t total)> callback();
  // Stops the clock and takes the bar away.
  void finish();
  double seconds() const;

 private:
  const std::string afterwards_;
  ProgressBar bar_;
  const Instant start_;
  Instant end_;
};

}  // namespace muster::cli
