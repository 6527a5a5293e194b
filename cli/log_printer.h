// Puts ranks' output, news about the job and a progress bar on one terminal without tearing lines.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cli/progress_bar.h"
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
  int output_fd = 1;
  int news_fd = 2;
  int32_t main_rank =
      0;  // printed as it is, the others with a prefix on news_fd; -1: all with a prefix
  int64_t steps = 0;  // of the whole job, for the bar; 0: no bar
  int32_t ranks = 1;
  bool json = false;  // each line of any rank is an object on output_fd
};

// Any thread.
class LogPrinter {
 public:
  explicit LogPrinter(LogPrinterOptions options);

  // Prints what was not printed before; a stream that begins again from the start may repeat itself. False when
  // the output can no longer be written.
  bool take(const v1::LogChunk& chunk);
  // "muster: …" on news_fd.
  void news(std::string_view message);
  // Prints incomplete last lines and takes the bar away.
  void finish();

 private:
  using Part = std::pair<uint32_t, int32_t>;  // attempt, rank

  bool print_line(const Part& part, std::string_view line);
  void print_as_it_is(int32_t rank, std::string_view line);
  void follow_steps(std::string_view line);
  // A rank in an error loop without line ends must not fill memory.
  static constexpr size_t kLineBytesMax = 64 << 10;

  const LogPrinterOptions options_;
  std::mutex mutex_;
  std::map<Part, uint64_t> seen_;
  std::map<Part, std::string> partial_;
  ProgressBar bar_;
  Instant first_step_at_{};
  int64_t first_step_ = -1;
  bool writable_ = true;
};

}  // namespace muster::cli
