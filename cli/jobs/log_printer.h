// Prints the ranks' output, notices about the job and a progress bar to one terminal, without
// mixing parts of their lines.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "cli/jobs/line_merger.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress_bar.h"
#include "common/text/terminal_text.h"
#include "common/time/time.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// The values in a rank's line about a completed step.
struct StepLine {
  int64_t step = 0;
  double tokens_per_second = 0;  // per device
  double loss = 0;
};

// Parses a step line in any form that MaxText has used since 2023; nullopt: `line` is no step line.
std::optional<StepLine> parse_step_line(std::string_view line);

// Selects the step lines that a terminal shows: all lines of a job with slow steps; for a faster
// job the first kBurst lines and then kPerSecond lines per second. Not thread-safe.
class StepThinning {
 public:
  // Returns whether to show a step line that arrives at `now`.
  bool shows(Instant now);

 private:
  double allowance_ = kBurst;
  Instant last_{};

  static constexpr double kBurst = 20;
  static constexpr double kPerSecond = 4;
};

// Settings for the format of the output.
struct LogPrinterOptions {
  // The rank whose lines are printed unchanged. Lines of other ranks get a prefix and are printed
  // to the notices' stream. -1: the lines of all ranks get a prefix.
  int32_t main_rank = 0;
  int64_t steps = 0;  // number of steps of the whole job, for the progress bar; 0: no bar
  int32_t ranks = 1;
  bool json = false;  // true: prints each line of each rank as a JSON object to `output`
  bool merge = true;  // true: if main_rank is -1, prints equal lines of several ranks as one line
  // True: a terminal shows only some step lines of a fast job; a pipe or file gets all lines.
  bool thin_steps = false;
  // Shows lines before they end: the newest state of a progress bar, or a question, of each rank at
  // most once a second. Otherwise a line is printed in its last state.
  bool live = false;
};

// Queues output, which the printer's own thread writes in the order of arrival. If the reader of
// the output stops reading, only callers of take() block. Thread-safe.
class LogPrinter {
 public:
  // Requires that `output` and `notice` outlive the printer. Notices go to `notice`.
  LogPrinter(Output& output, Output& notice, LogPrinterOptions options);
  // Prints the remaining output, as finish() does.
  ~LogPrinter();
  LogPrinter(const LogPrinter&) = delete;
  LogPrinter& operator=(const LogPrinter&) = delete;

  // Queues the part of `chunk` that was not queued before: a stream that restarts from the
  // beginning repeats earlier chunks. Blocks while too much output is queued. Returns false once
  // the output can no longer be written.
  bool take(const v1::LogChunk& chunk);
  // Queues "muster: …" for the notices' stream, after the output queued so far. Never blocks; drops
  // the notice if very many notices are queued.
  void notice(std::string_view message);
  // Queues incomplete last lines and removes the progress bar. Blocks until all queued output is
  // written or cannot be written.
  void finish();

  // Returns whether output is queued.
  bool is_behind() const;
  // Stops waiting for a reader that no longer reads (Output::hurry).
  void hurry();
  // Does the same as hurry(), and discards the ranks' output from now on, so that take() and
  // finish() return. Notices are still printed.
  void give_up();

 private:
  using Part = std::pair<uint32_t, int32_t>;  // attempt, rank
  struct Notice {
    std::string text;
  };
  struct LastLines {};
  // The incomplete line of a rank.
  struct RankLines {
    LineStates states;
    std::string shown;  // the state that is shown, "" if none
    Instant shown_at{};
    Instant changed_at{};
    Instant new_since{};  // valid if is_new
    bool is_new = false;  // `states` has more than is shown
  };
  // A line that is written without its end.
  struct OpenLine {
    Part part;
    std::string text;
  };
  using Item = std::variant<v1::LogChunk, Notice, LastLines>;

  void print_all(const std::stop_token& stop);
  void print(const v1::LogChunk& chunk);
  void print(const Notice& notice);
  void print(LastLines);
  void print_line(const Part& part, int64_t unix_ns, std::string_view line);
  void show_due_states(Instant now);
  bool is_state_due(const Part& part, const RankLines& lines, Instant now) const;
  void show_state(const Part& part, std::string_view state);
  void print_open(const Part& part, std::string_view line, bool ends);
  void close_open_line();
  void close_open_line_before(const Output& output);
  bool waits_for_time() const;
  void report_replaced();
  void print(const std::vector<MergedLine>& lines);
  void print_to(Output& output, std::string_view line);
  void follow_steps(std::string_view line);
  bool is_thinned_out(int32_t rank, std::string_view line);
  // Bounds the memory for a rank that writes no line ends.
  static constexpr size_t kLineBytesMax = 64 << 10;

  const LogPrinterOptions options_;
  Output& output_;
  Output& notices_;
  const bool share_a_place_;  // text of one appears within the lines of the other

  // Used by the printing thread only.
  std::map<Part, uint64_t> seen_;
  std::map<Part, RankLines> partial_;
  std::optional<OpenLine> open_;
  uint64_t replaced_ = 0;  // states that were not printed and are not reported yet
  uint64_t job_ = 0;
  LineMerger merger_;
  std::optional<ProgressBar> bar_;
  Instant first_step_at_{};
  int64_t first_step_ = -1;
  const bool thins_steps_;
  StepThinning thinning_;
  std::string newest_hidden_;  // the last received step line, if it was not shown
  int64_t hidden_ = 0;

  std::atomic<bool> is_given_up_{false};
  std::atomic<bool> is_writable_{true};
  mutable std::mutex mutex_;  // guards the members below; not held while printing
  std::condition_variable_any put_;
  std::condition_variable printed_;
  std::deque<Item> queue_;  // the first item is being printed
  size_t log_bytes_ = 0;    // bytes of the ranks' output in queue_
  int notices_waiting_ = 0;
  // last member: the thread ends before the members that it uses are destroyed
  std::jthread printer_;
};

}  // namespace muster::cli
