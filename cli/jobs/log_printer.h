// Puts ranks' output, news about the job and a progress bar on one terminal without tearing lines.
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
#include "common/time.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

struct StepLine {
  int64_t step = 0;
  double tokens_per_second = 0;  // per device
  double loss = 0;
};

// Reads MaxText's step line in any of its forms since 2023.
std::optional<StepLine> parse_step_line(std::string_view line);

struct LogPrinterOptions {
  int32_t main_rank =
      0;              // printed as it is, the others with a prefix on `news`; -1: all with a prefix
  int64_t steps = 0;  // of the whole job, for the bar; 0: no bar
  int32_t ranks = 1;
  bool json = false;  // each line of any rank is an object on `output`
  bool merge = true;  // with main_rank -1: what ranks say together is one line
};

// Any thread. A thread of its own does the writing, in the order in which things came: a reader that does not read
// keeps back what comes behind, and nobody who calls but take().
class LogPrinter {
 public:
  // Both must outlive it.
  LogPrinter(Output& output, Output& news, LogPrinterOptions options);
  // Prints what is left, as finish() does.
  ~LogPrinter();
  LogPrinter(const LogPrinter&) = delete;
  LogPrinter& operator=(const LogPrinter&) = delete;

  // Prints what was not printed before; a stream that begins again from the start may repeat itself. Waits while much
  // is unprinted. False when the output can no longer be written.
  bool take(const v1::LogChunk& chunk);
  // "muster: …" on `news`, behind what is unprinted. Never waits; of very many unprinted ones some are dropped.
  void news(std::string_view message);
  // Prints incomplete last lines, takes the bar away, and waits until all is printed that can be.
  void finish();

  // Something waits to be printed.
  bool is_behind() const;
  // A reader that does not read is waited for no longer (Output::hurry).
  void hurry();
  // Nor is the ranks' output printed any more, which lets take() and finish() return. News still are.
  void give_up();

 private:
  using Part = std::pair<uint32_t, int32_t>;  // attempt, rank
  struct News {
    std::string text;
  };
  struct LastLines {};
  using Item = std::variant<v1::LogChunk, News, LastLines>;

  void print_all(const std::stop_token& stop);
  void print(const v1::LogChunk& chunk);
  void print(const News& news);
  void print(LastLines);
  void print_line(const Part& part, int64_t unix_ns, std::string_view line);
  void print(const std::vector<MergedLine>& lines);
  void print_to(Output& output, std::string_view line);
  void follow_steps(std::string_view line);
  // A rank in an error loop without line ends must not fill memory.
  static constexpr size_t kLineBytesMax = 64 << 10;

  const LogPrinterOptions options_;
  Output& output_;
  Output& news_;

  // The printing thread's alone.
  std::map<Part, uint64_t> seen_;
  std::map<Part, std::string> partial_;
  uint64_t job_ = 0;
  LineMerger merger_;
  std::optional<ProgressBar> bar_;
  Instant first_step_at_{};
  int64_t first_step_ = -1;

  std::atomic<bool> is_given_up_{false};
  std::atomic<bool> is_writable_{true};
  mutable std::mutex mutex_;  // guards what follows; not held while anything is printed
  std::condition_variable_any put_;
  std::condition_variable printed_;
  std::deque<Item> queue_;  // the front is being printed
  size_t log_bytes_ = 0;    // of the ranks' output in it
  int news_waiting_ = 0;
  std::jthread printer_;  // last: it ends before what it uses
};

}  // namespace muster::cli
