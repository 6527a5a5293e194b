// The one line at the bottom of a terminal that says how far a long operation is and how long it takes; on a pipe, a
// plain line now and then.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "cli/terminal/output.h"
#include "common/time.h"

namespace muster::cli {

// How far an operation is.
struct Progress {
  std::string label{};               // what it is at: "merging"; may be empty
  std::optional<double> fraction{};  // of that; without one only the time is shown
  double seconds_left = -1;          // until all is done; negative while unknown
  std::string note{};                // figures: "31.0MB/s"
};

// "label [#####     ]  52%  12s, 30s left  note" in at most `width` columns. What does not fit gives way in this order:
// the note, the bar, the label.
std::string render_bar(const Progress& progress, double elapsed_seconds, int width);

// One owner, who writes other lines to the same terminal only between hide() and show(). On a terminal a thread of its
// own draws the line again while nothing is reported, so that the time goes on and a changed width is followed.
class ProgressBar {
 public:
  // Shows on `output`, which must outlive it. `what` begins plain lines: "tokenize: reading 52%, 12s, 30s left, 31.0MB/s". The clock starts now.
  ProgressBar(Output& output, std::string what, Instant now);
  // Takes the line away.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  bool on_terminal() const { return on_terminal_; }
  // Redraws at most every 50 ms on a terminal, and at once under a new label; prints at most every 5 s elsewhere.
  void update(Progress progress, Instant now);
  // Takes the line away; until show(), an update only says what it will show.
  void hide();
  void show();

 private:
  void draw(Instant now);
  void print(Instant now);
  void keep_fresh(const std::stop_token& stop);

  Output& output_;
  const std::string what_;
  const bool on_terminal_;
  const Instant start_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable_any stopping_;
  std::optional<Progress> progress_;
  Instant reported_at_{};
  Instant shown_at_{};
  bool is_hidden_ = false;
  bool is_drawn_ = false;
  std::jthread refresher_;  // last: it ends before what it uses
};

// Seconds left at the pace since `start`; negative while unknown.
double seconds_left(double fraction, Instant start, Instant now);

}  // namespace muster::cli
