#include "cli/terminal/progress_bar.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"

namespace muster::cli {
namespace {

// A shorter interval is not visible; with a longer one the bar seems to stop.
constexpr auto kRedrawInterval = std::chrono::milliseconds(50);
// Redraw between two reports: the seconds advance, and the line is repaired soon after the window
// shrinks.
constexpr auto kRefreshInterval = std::chrono::milliseconds(500);
// Rare enough for a readable log.
constexpr auto kPlainInterval = std::chrono::seconds(5);
// Leaves room for steps, loss, rate and time left within 80 columns.
constexpr size_t kBarWidth = 16;
constexpr std::string_view kClearLine = "\r\x1b[2K";
// Below this fraction the pace is no basis for an estimate.
constexpr double kFractionMin = 0.005;

int percent(double fraction) { return static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100); }

std::string times(double elapsed_seconds, double seconds_left) {
  const std::string elapsed = format_duration(elapsed_seconds);
  return seconds_left < 0 ? elapsed
                          : absl::StrCat(elapsed, ", ", format_duration(seconds_left), " left");
}

}  // namespace

std::string render_bar(const Progress& progress, double elapsed_seconds, int width) {
  // The last column stays empty: some terminals wrap when it is written.
  const size_t room = width > 1 ? static_cast<size_t>(width) - 1 : 0;
  std::string figures = times(elapsed_seconds, progress.seconds_left);
  if (progress.fraction) {
    figures = absl::StrFormat("%3d%%  %s", percent(*progress.fraction), figures);
  }
  if (columns(figures) >= room) return shorten(figures, room);
  size_t left = room - columns(figures);
  // At most half of the rest, so that a long label leaves room for the bar.
  std::string line = shorten(progress.label, left / 2);
  if (!line.empty()) line += ' ';
  left -= columns(line);
  if (progress.fraction && left > kBarWidth + 3) {
    const size_t filled = static_cast<size_t>(percent(*progress.fraction)) * kBarWidth / 100;
    absl::StrAppend(&line, "[", std::string(filled, '#'), std::string(kBarWidth - filled, ' '),
                    "] ");
    left -= kBarWidth + 3;
  }
  line += figures;
  constexpr size_t kNoteMin = 8;  // a shorter note has no information
  if (!progress.note.empty() && left >= 2 + std::min(kNoteMin, columns(progress.note))) {
    absl::StrAppend(&line, "  ", shorten(progress.note, left - 2));
  }
  return line;
}

ProgressBar::ProgressBar(Output& output, std::string what, Instant now)
    : output_(output),
      what_(std::move(what)),
      on_terminal_(takes_escapes(output.fd())),
      start_(now) {}

ProgressBar::~ProgressBar() { hide(); }

void ProgressBar::update(Progress progress, Instant now) {
  const std::lock_guard lock(mutex_);
  const bool is_new = !progress_ || progress_->label != progress.label;
  progress_ = std::move(progress);
  reported_at_ = now;
  if (!on_terminal_) {
    print(now);
    return;
  }
  if (is_hidden_ || (!is_new && now - shown_at_ < kRedrawInterval)) return;
  draw(now);
  if (!refresher_.joinable()) {
    refresher_ = std::jthread([this](const std::stop_token& stop) { refresh_loop(stop); });
  }
}

void ProgressBar::print(Instant now) {
  // An operation that ends within the first interval prints no line.
  if (now - std::max(shown_at_, start_) < kPlainInterval) return;
  shown_at_ = now;
  std::vector<std::string> parts;
  if (progress_->fraction) parts.push_back(absl::StrCat(percent(*progress_->fraction), "%"));
  parts.push_back(times(to_seconds(now - start_), progress_->seconds_left));
  if (!progress_->note.empty()) parts.push_back(progress_->note);
  output_.write(absl::StrCat(what_, ": ", progress_->label, progress_->label.empty() ? "" : " ",
                             absl::StrJoin(parts, ", "), "\n"));
}

void ProgressBar::draw(Instant now) {
  Progress progress = *progress_;
  // Counts down from the last report; once the estimate has expired, no time left is shown.
  progress.seconds_left -= to_seconds(now - reported_at_);
  output_.write(absl::StrCat(av(kClearLine), render_bar(progress, to_seconds(now - start_),
                                                        terminal_width(output_.fd()))));
  shown_at_ = now;
  is_drawn_ = true;
}

void ProgressBar::refresh_loop(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    stopping_.wait_for(lock, stop, kRefreshInterval, [] { return false; });
    if (is_drawn_ && !stop.stop_requested()) draw(monotonic_now());
  }
}

void ProgressBar::hide() {
  const std::lock_guard lock(mutex_);
  is_hidden_ = true;
  if (!is_drawn_) return;
  output_.write(kClearLine);
  is_drawn_ = false;
}

void ProgressBar::show() {
  const std::lock_guard lock(mutex_);
  is_hidden_ = false;
  if (on_terminal_ && progress_) draw(monotonic_now());
}

double seconds_left(double fraction, Instant start, Instant now) {
  if (fraction < kFractionMin) return -1;
  return to_seconds(now - start) / fraction * (1 - std::min(fraction, 1.0));
}

}  // namespace muster::cli
