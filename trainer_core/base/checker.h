// Checks of the settings of a config.
#pragma once

#include <cmath>
#include <string_view>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::trainer {

// Stores the first error, so that the checks below can be written as a table.
class Checker {
 public:
  void range(std::string_view key, int64_t value, int64_t min, int64_t max) {
    if (value < min || value > max) {
      fail(absl::StrCat(av(key), " is ", value, ", but must be between ", min, " and ", max));
    }
  }
  // Also rejects NaN, which fails every comparison.
  void number(std::string_view key, double value, bool holds, std::string_view allowed) {
    if (!std::isfinite(value) || !holds) {
      fail(absl::StrCat(av(key), " is ", value, ", but must be ", av(allowed)));
    }
  }
  void require(bool holds, std::string_view message) {
    if (!holds) fail(message);
  }
  void take(const absl::Status& status) { status_.Update(status); }
  const absl::Status& status() const { return status_; }

 private:
  void fail(std::string_view message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(av(message));
  }
  absl::Status status_;
};

}  // namespace muster::trainer
