#include "cli/jobs/line_merger.h"

#include <chrono>

namespace muster::cli {
namespace {

// Ranks that start, warn or fail together do so within this time. A longer one would delay readers
// of the log.
constexpr Duration kTogether = std::chrono::seconds(1);
constexpr size_t kLinesMax = 4096;
constexpr size_t kBytesMax = 4 << 20;

}  // namespace

std::vector<MergedLine> LineMerger::add(uint32_t attempt, int32_t rank, int64_t unix_ns,
                                        std::string_view text, Instant now) {
  std::vector<MergedLine> out;
  uint64_t& last = last_[rank];
  const Key key{attempt, std::string(text)};
  const auto same = newest_.find(key);
  if (same != newest_.end() && same->second->number > last) {
    same->second->line.ranks.add(rank);
    last = same->second->number;
  } else {
    Waiting& waiting = waiting_.emplace_back();
    waiting.line = {.attempt = attempt, .ranks = {}, .text = key.second};
    waiting.line.ranks.add(rank);
    waiting.number = last = ++number_;
    waiting.unix_ns = unix_ns;
    waiting.came = now;
    bytes_ += text.size();
    newest_[key] = std::prev(waiting_.end());
  }
  const auto is_old = [&](const Waiting& first) {
    return first.unix_ns > 0 && unix_ns - first.unix_ns > kTogether.count();
  };
  while (!waiting_.empty() &&
         (is_old(waiting_.front()) || waiting_.size() > kLinesMax || bytes_ > kBytesMax))
    take_first(out);
  return out;
}

std::vector<MergedLine> LineMerger::due(Instant now) {
  std::vector<MergedLine> out;
  while (!waiting_.empty() && now - waiting_.front().came >= kTogether) take_first(out);
  return out;
}

std::vector<MergedLine> LineMerger::flush() {
  std::vector<MergedLine> out;
  while (!waiting_.empty()) take_first(out);
  return out;
}

void LineMerger::take_first(std::vector<MergedLine>& out) {
  Waiting& first = waiting_.front();
  const auto newest = newest_.find({first.line.attempt, first.line.text});
  if (newest->second == waiting_.begin()) newest_.erase(newest);
  bytes_ -= first.line.text.size();
  out.push_back(std::move(first.line));
  waiting_.pop_front();
}

}  // namespace muster::cli
