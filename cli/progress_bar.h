// The one line at the bottom of a terminal that says how far a long operation is; on a pipe, a plain line
// now and then.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/time.h"

namespace muster::cli {

// "[#####     ]  52%  note", at most `width` columns.
std::string render_bar(double fraction, std::string_view note, int width);

// Not thread-safe: one owner, who writes other lines to the same terminal only between hide() and show().
class ProgressBar {
 public:
  // Shows on `fd`. `what` begins plain lines: "tokenize: 52%, 31.0MB/s, 3s left".
  ProgressBar(int fd, std::string what);
  // Takes the line away.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  bool on_terminal() const { return on_terminal_; }
  // Redraws at most every 50 ms on a terminal; prints at most every 5 s elsewhere.
  void update(double fraction, std::string note, Instant now);
  void hide();
  void show();

 private:
  const int fd_;
  const std::string what_;
  const bool on_terminal_;
  double fraction_ = 0;
  std::string note_;
  bool has_news_ = false;
  bool is_drawn_ = false;
  Instant last_shown_{};
};

// Seconds left at the pace since `start`; negative while unknown.
double seconds_left(double fraction, Instant start, Instant now);

}  // namespace muster::cli
