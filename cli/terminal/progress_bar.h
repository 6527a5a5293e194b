// The bottom line of a terminal with the progress of a long operation and its time; on a pipe, an
// occasional plain line.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "cli/terminal/output.h"
#include "common/time.h"

namespace muster::cli {

// The state of an operation.
struct Progress {
  std::string label{};               // the current phase: "merging"; may be empty
  std::optional<double> fraction{};  // of that phase; nullopt: only the time is shown
  double seconds_left = -1;          // until everything is done; negative: unknown
  std::string note{};                // figures: "31.0MB/s"
};

// Returns "label [#####     ]  52%  12s, 30s left  note" in at most `width` columns. If it does not
// fit, the note, the bar and the label are dropped or cut in this order.
std::string render_bar(const Progress& progress, double elapsed_seconds, int width);

// Has one owner, who writes other lines to the same terminal only between hide() and show(). On a
// terminal a thread redraws the line between updates, so that the time advances and a changed width
// takes effect.
class ProgressBar {
 public:
  // `output` must outlive the bar. `what` begins plain lines: "tokenize: reading 52%, 12s, 30s
  // left, 31.0MB/s". The clock starts at `now`.
  ProgressBar(Output& output, std::string what, Instant now);
  // Removes the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  bool on_terminal() const { return on_terminal_; }
  // On a terminal: redraws at most every 50 ms, and immediately for a new label. Elsewhere: prints
  // at most every 5 s.
  void update(Progress progress, Instant now);
  // Removes the line; until show(), updates are stored and not drawn.
  void hide();
  void show();

 private:
  void draw(Instant now);
  void print(Instant now);
  void refresh_loop(const std::stop_token& stop);

  Output& output_;
  const std::string what_;
  const bool on_terminal_;
  const Instant start_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable_any stopping_;
  std::optional<Progress> progress_;
  Instant reported_at_{};
  Instant shown_at_{};
  bool is_hidden_ = false;
  bool is_drawn_ = false;
  std::jthread refresher_;  // last: it ends before the members that it uses
};

// Returns the seconds left at the pace since `start`; negative: unknown.
double seconds_left(double fraction, Instant start, Instant now);

}  // namespace muster::cli
