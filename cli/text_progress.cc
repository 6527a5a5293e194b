#include "cli/text_progress.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "cli/terminal.h"

namespace muster::cli {

TextProgress::TextProgress(std::string what, std::string afterwards)
    : afterwards_(std::move(afterwards)),
      bar_(STDERR_FILENO, std::move(what)),
      start_(monotonic_now()),
      end_(start_) {}

std::function<void(uint64_t, uint64_t)> TextProgress::callback() {
  return [this](uint64_t done, uint64_t total) {
    const Instant now = monotonic_now();
    const double fraction = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
    const double seconds = std::max(to_seconds(now - start_), 1e-3);
    std::string note =
        done >= total ? absl::StrCat(afterwards_, "…")
                      : absl::StrCat(format_count(static_cast<double>(done) / seconds), "B/s  ",
                                     format_duration(seconds_left(fraction, start_, now)), " left");
    bar_.update(fraction, std::move(note), now);
    // The last report comes before the long silence of what follows: show it whatever the redraw interval.
    if (done >= total) bar_.show();
  };
}

void TextProgress::finish() {
  end_ = monotonic_now();
  bar_.hide();
}

double TextProgress::seconds() const { return std::max(to_seconds(end_ - start_), 1e-6); }

}  // namespace muster::cli
