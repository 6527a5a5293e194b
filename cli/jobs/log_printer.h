// Prints the ranks' output, notices about the job and a progress bar on one terminal without
// tearing lines.
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
#include "common/terminal_text.h"
#include "common/time.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

struct StepLine {
  int64_t step = 0;
  double tokens_per_second = 0;  // per device
  double loss = 0;
};

// Parses MaxText's step line in any of its forms since 2023.
std::optional<StepLine> parse_step_line(std::string_view line);

// Chooses the step lines that a terminal shows: all of a job whose steps a person can follow, and
// of a faster one the first lines and then some per second. Not thread-safe.
class StepThinning {
 public:
  // Returns whether to show a step line that arrives now.
  bool shows(Instant now);

 private:
  double allowance_ = kBurst;
  Instant last_{};

  static constexpr double kBurst = 20;
  static constexpr double kPerSecond = 4;
};

struct LogPrinterOptions {
  // The rank whose lines are printed unchanged; the others' get a prefix and go to `notices`. -1:
  // all lines get a prefix.
  int32_t main_rank = 0;
  int64_t steps = 0;  // of the whole job, for the bar; 0: no bar
  int32_t ranks = 1;
  bool json = false;  // prints each line of any rank as an object on `output`
  bool merge = true;  // with main_rank -1: prints equal lines of several ranks as one
  // On a terminal, shows only some step lines of a fast job; a pipe or file gets all.
  bool thin_steps = false;
  // Shows lines before they end: the newest state of a progress bar, or a question, of each rank at
  // most once a second. Otherwise a line is printed in its last state.
  bool live = false;
};

// Thread-safe. A thread of its own writes everything in the order of arrival. A reader that stops
// reading delays the output behind it, but blocks no caller except those of take().
class LogPrinter {
 public:
  // Both must outlive the printer.
  LogPrinter(Output& output, Output& notice, LogPrinterOptions options);
  // Prints the rest, as finish() does.
  ~LogPrinter();
  LogPrinter(const LogPrinter&) = delete;
  LogPrinter& operator=(const LogPrinter&) = delete;

  // Prints the part of `chunk` that was not printed before; a stream that restarts from the
  // beginning may repeat itself. Blocks while too much is unprinted. Returns false when the output
  // can no longer be written.
  bool take(const v1::LogChunk& chunk);
  // Prints "muster: …" on `notices` after the output queued so far. Never blocks; when very many
  // are queued, some are dropped.
  void notice(std::string_view message);
  // Prints incomplete last lines, removes the bar, and blocks until everything that can be printed
  // is printed.
  void finish();

  // True while output is queued.
  bool is_behind() const;
  // Stops waiting for a reader that does not read (Output::hurry).
  void hurry();
  // As hurry(), and discards the ranks' output from now on, which lets take() and finish() return.
  // News are still printed.
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
  void show_states(Instant now);
  bool is_state_due(const Part& part, const RankLines& lines, Instant now) const;
  void show_state(const Part& part, std::string_view state);
  void print_open(const Part& part, std::string_view line, bool ends);
  void close_open_line();
  bool waits_for_time() const;
  void report_replaced();
  void print(const std::vector<MergedLine>& lines);
  void print_to(Output& output, std::string_view line);
  void follow_steps(std::string_view line);
  bool is_thinned_out(int32_t rank, std::string_view line);
  // Bounds memory when a rank writes without line ends.
  static constexpr size_t kLineBytesMax = 64 << 10;

  const LogPrinterOptions options_;
  Output& output_;
  Output& notices_;

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
  std::string newest_hidden_;  // the step line that was received last, if it is hidden
  int64_t hidden_ = 0;

  std::atomic<bool> is_given_up_{false};
  std::atomic<bool> is_writable_{true};
  mutable std::mutex mutex_;  // guards the members below; not held while printing
  std::condition_variable_any put_;
  std::condition_variable printed_;
  std::deque<Item> queue_;  // the front is being printed
  size_t log_bytes_ = 0;    // bytes of the ranks' output in queue_
  int notices_waiting_ = 0;
  std::jthread printer_;  // last: it ends before the members that it uses
};

}  // namespace muster::cli
