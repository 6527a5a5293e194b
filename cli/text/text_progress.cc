#include "cli/text/text_progress.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

#include "cli/terminal/terminal.h"

namespace muster::cli {
namespace {

constexpr auto kFirstGuessAfter = std::chrono::seconds(1);

double share(uint64_t done, uint64_t total) {
  return total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
}

}  // namespace

Progress reading_progress(uint64_t done, uint64_t total, Instant start, Instant now,
                          uint64_t from) {
  if (done >= total) return {.label = "writing"};
  const double seconds = std::max(to_seconds(now - start), 1e-3);
  const uint64_t fresh = done - std::min(from, done);
  return {.label = "reading",
          .fraction = share(done, total),
          .seconds_left = seconds_left(share(fresh, total - std::min(from, done)), start, now),
          .note = absl::StrCat(format_count(static_cast<double>(fresh) / seconds), "B/s")};
}

Progress TrainingProgress::at(const trainer::TrainTokenizerProgress& report, Instant now) {
  using Phase = trainer::TrainTokenizerProgress::Phase;
  switch (report.phase) {
    case Phase::kReading: {
      Progress progress = reading_progress(report.done, report.total, start_, now);
      progress.label = "reading";
      progress.seconds_left = -1;
      return progress;
    }
    case Phase::kCounting:
      return {.label = "counting words"};
    case Phase::kMerging:
      break;
  }
  const double left = merging_seconds_left(report, now);
  return {.label = "merging",
          .fraction = share(report.done, report.total),
          .seconds_left = left,
          .note = absl::StrCat(report.done, " of ", report.total, " pieces")};
}

double TrainingProgress::merging_seconds_left(const trainer::TrainTokenizerProgress& report,
                                              Instant now) {
  if (!merging_since_) {
    merging_since_ = now;
    older_ = newer_ = {now, report.done};
  }
  if (now - *merging_since_ >= 2 * (newer_.time - *merging_since_) + kFirstGuessAfter) {
    older_ = newer_;
    newer_ = {now, report.done};
  }
  if (newer_.time == *merging_since_ || report.done <= older_.done) return -1;
  const double pace =
      to_seconds(now - older_.time) / static_cast<double>(report.done - older_.done);
  return pace * static_cast<double>(report.total - report.done);
}

}  // namespace muster::cli
