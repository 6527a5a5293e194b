#include "worker/shell/evidence/stack_trace.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace muster::worker {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;
constexpr int64_t kNsPerMs = 1'000'000;

}  // namespace

std::string utc_time(int64_t unix_ns) {
  const auto seconds = static_cast<time_t>(unix_ns / kNsPerSecond);
  tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return absl::StrFormat("%s.%03dZ", text.data(), unix_ns % kNsPerSecond / kNsPerMs);
}

std::string trace_text(const StackTrace& trace) {
  std::string text = absl::StrCat("muster: stacks of rank ", trace.key.rank.value(), ", pid ",
                                  trace.pid, ", at ", utc_time(trace.unix_ns), "\n");
  if (!trace.problem.empty()) return absl::StrCat(text, "no stack: ", trace.problem, "\n");
  if (!trace.note.empty()) absl::StrAppend(&text, trace.note, "\n");
  std::vector<StackTree::Class> threads = trace.stacks.classes("");
  std::stable_sort(threads.begin(), threads.end(), [](const auto& a, const auto& b) {
    return (a.thread == "main") > (b.thread == "main");
  });
  for (const StackTree::Class& thread : threads) {
    std::string lines = absl::StrCat("thread ", thread.thread, "\n");
    for (auto frame = thread.frames.rbegin(); frame != thread.frames.rend(); ++frame)
      absl::StrAppend(&lines, "  ", trace.stacks.frame_text(*frame), "\n");
    if (text.size() + lines.size() > kTraceTextBytesMax) {
      absl::StrAppend(&text, "… and ", threads.end() - threads.begin() - (&thread - threads.data()),
                      " more threads\n");
      break;
    }
    text += lines;
  }
  return text;
}

nlohmann::json trace_record(const StackTrace& trace) {
  return {{"time", utc_time(trace.unix_ns)},
          {"unix_ns", trace.unix_ns},
          {"severity", "INFO"},
          {"verb", "stacktraceanalyzer"},
          {"job", trace.key.job.value()},
          {"job_name", trace.job_name},
          {"attempt", trace.key.attempt.value()},
          {"rank", trace.key.rank.value()},
          {"pid", trace.pid},
          {"worker", trace.worker},
          {"message", trace_text(trace)}};
}

}  // namespace muster::worker
