// Shows the progress of a long operation: on a terminal, a line at the bottom that is redrawn; on a
// pipe, a plain line now and then.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "cli/terminal/output.h"
#include "common/time/time.h"

namespace muster::cli {

// The state of an operation.
struct Progress {
  std::string label{};  // the current phase: "merging"; may be empty
  // completed part of that phase, 0 to 1; nullopt: only the time is shown
  std::optional<double> fraction{};
  double seconds_left = -1;  // seconds until the whole operation ends; negative: unknown
  std::string note{};        // further figures: "31.0MB/s"
};

// Returns "label [##### ] 52% 12s, 30s left note" in at most `width` columns. If the line does not
// fit, drops the note, then the bar, then cuts the label.
std::string render_bar(const Progress& progress, double elapsed_seconds, int width);

// A progress bar on one output. Its owner may write other lines to the same terminal only between
// hide() and show(). On a terminal, a thread redraws the line between updates, so that the time
// advances and a changed width takes effect.
class ProgressBar {
 public:
  // Requires that `output` outlives the bar. `what`: the prefix of plain lines, as in "tokenize:
  // reading 52%, 12s, 30s left, 31.0MB/s". `now`: the start of the operation.
  ProgressBar(Output& output, std::string what, Instant now);
  // Removes the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  bool on_terminal() const { return on_terminal_; }
  // Stores the progress. On a terminal, redraws the line at most every 50 ms, but immediately for a
  // new label. Otherwise prints a line at most every 5 s.
  void update(Progress progress, Instant now);
  // Removes the line. Until show(), updates are stored, but not drawn.
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

// Returns the seconds until an operation ends of which `fraction` is done, at its average speed
// since `start`; negative: unknown.
double seconds_left(double fraction, Instant start, Instant now);

}  // namespace muster::cli
