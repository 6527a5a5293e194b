#include "cli/progress_bar.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "cli/terminal.h"
#include "common/absl_view.h"

namespace muster::cli {
namespace {

// Faster is not seen, slower looks stuck.
constexpr auto kRedrawInterval = std::chrono::milliseconds(50);
// A log stays readable.
constexpr auto kPlainInterval = std::chrono::seconds(5);
// Leaves room for steps, loss, rate and time left within 80 columns.
constexpr int kBarWidth = 16;
constexpr std::string_view kClearLine = "\r\x1b[2K";
// Below this the pace says nothing about what is left.
constexpr double kFractionMin = 0.005;

}  // namespace

std::string render_bar(double fraction, std::string_view note, int width) {
  fraction = std::clamp(fraction, 0.0, 1.0);
  const int filled = static_cast<int>(fraction * kBarWidth);
  std::string line =
      absl::StrFormat("[%s%s] %3d%%  %s", std::string(static_cast<size_t>(filled), '#'),
                      std::string(static_cast<size_t>(kBarWidth - filled), ' '),
                      static_cast<int>(fraction * 100), av(note));
  // The last column stays free: some terminals wrap when it is written.
  line.resize(std::min(line.size(), static_cast<size_t>(std::max(width - 1, 0))));
  return line;
}

ProgressBar::ProgressBar(int fd, std::string what)
    : fd_(fd), what_(std::move(what)), on_terminal_(is_terminal(fd)) {}

ProgressBar::~ProgressBar() { hide(); }

void ProgressBar::update(double fraction, std::string note, Instant now) {
  const bool is_first = !has_news_;
  fraction_ = fraction;
  note_ = std::move(note);
  has_news_ = true;
  if (on_terminal_) {
    if (!is_first && now - last_shown_ < kRedrawInterval) return;
    last_shown_ = now;
    show();
    return;
  }
  if (is_first) last_shown_ = now;
  if (now - last_shown_ < kPlainInterval) return;
  last_shown_ = now;
  write_text(fd_,
             absl::StrFormat("%s: %d%%, %s\n", what_, static_cast<int>(fraction * 100), note_));
}

void ProgressBar::hide() {
  if (!is_drawn_) return;
  write_text(fd_, kClearLine);
  is_drawn_ = false;
}

void ProgressBar::show() {
  if (!on_terminal_ || !has_news_) return;
  write_text(fd_, absl::StrCat(av(kClearLine), render_bar(fraction_, note_, terminal_width(fd_))));
  is_drawn_ = true;
}

double seconds_left(double fraction, Instant start, Instant now) {
  if (fraction < kFractionMin) return -1;
  const double spent = std::chrono::duration<double>(now - start).count();
  return spent / fraction * (1 - std::min(fraction, 1.0));
}

}  // namespace muster::cli
