#include "common/objects/rclone_output.h"

#include <algorithm>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"
#include "common/text/has_any.h"

namespace muster::rclone {
namespace {

// Limit of a cause in a message.
constexpr size_t kCauseBytesMax = 300;
// Limit of a line that StatsReader retains.
constexpr size_t kLineBytesMax = 4096;

}  // namespace

bool take_copied(std::string& errors) {
  std::vector<absl::string_view> others;
  bool copied = false;
  for (const absl::string_view line : absl::StrSplit(errors, '\n')) {
    const bool is_info = has_any(sv(line), {" INFO  : ", " NOTICE: "});
    copied = copied || (is_info && sv(line).find(" Copied (") != line.npos);
    if (!is_info) others.push_back(line);
  }
  errors = absl::StrJoin(others, "\n");
  return copied;
}

std::string cause_of(const std::string& errors) {
  std::string cause;
  for (const absl::string_view piece : absl::StrSplit(errors, '\n', absl::SkipEmpty())) {
    absl::string_view line = piece;
    if (absl::ConsumePrefix(&line, "caused by: ")) {
      absl::StrAppend(&cause, ": ", line);
      break;
    }
    if (!cause.empty()) continue;
    constexpr size_t kTimeBytes = sizeof("2026/01/31 10:00:00");
    line.remove_prefix(std::min(line.size(), kTimeBytes));
    absl::ConsumePrefix(&line, "ERROR : ");
    absl::ConsumePrefix(&line, ": ");
    // The name of the remote is ours: Failed to create file system for "musterstore:b/x": …
    if (const size_t remote = line.find("\": ");
        absl::StartsWith(line, "Failed to create file system") && remote != absl::string_view::npos)
      line.remove_prefix(remote + 3);
    absl::ConsumePrefix(&line, "failed to configure Google Cloud Storage: google: ");
    cause = std::string(line);
  }
  cause.resize(std::min(cause.size(), kCauseBytesMax));
  return cause;
}

// Go's errors of connections: "dial tcp 10.0.0.1:9000: connect: connection refused".
std::string why_unreachable(const std::string& errors) {
  constexpr std::string_view kReasons[] = {"connection refused",
                                           "connection reset by peer",
                                           "no such host",
                                           "network is unreachable",
                                           "no route to host",
                                           "i/o timeout",
                                           "TLS handshake timeout",
                                           "timeout awaiting response headers",
                                           "server misbehaving",
                                           "certificate signed by unknown authority",
                                           "certificate is valid for"};
  const auto* const reason = std::ranges::find_if(
      kReasons, [&](std::string_view words) { return errors.find(words) != errors.npos; });
  if (reason == std::end(kReasons)) return "";
  return *reason == "i/o timeout" ? "no connection in time" : std::string(*reason);
}

// The line: "2026/01/31 10:00:00 INFO  :   2.027 MiB / 5.722 MiB, 35%, 1 MiB/s, ETA 3s".
std::optional<uint64_t> sent_bytes(std::string_view line) {
  constexpr std::string_view kMark = " INFO  : ";
  const size_t mark = line.find(kMark);
  if (mark == line.npos) return std::nullopt;
  const std::vector<absl::string_view> words =
      absl::StrSplit(av(line.substr(mark + kMark.size())), ' ', absl::SkipEmpty());
  double number = 0;
  const bool is_statistics = words.size() >= 5 && words[2] == "/" && absl::EndsWith(words[4], ",");
  if (!is_statistics || !absl::SimpleAtod(words[0], &number) || number < 0) return std::nullopt;
  double unit = 1;
  for (const std::string_view prefix : {"B", "Ki", "Mi", "Gi", "Ti", "Pi"}) {
    if (absl::StartsWith(words[1], av(prefix))) return static_cast<uint64_t>(number * unit);
    unit *= 1024;
  }
  return std::nullopt;
}

void StatsReader::add(std::string_view text) {
  rest_.append(text);
  for (size_t end = rest_.find('\n'); end != rest_.npos; end = rest_.find('\n')) {
    if (const auto bytes = sent_bytes(std::string_view(rest_).substr(0, end))) meter_(*bytes);
    rest_.erase(0, end + 1);
  }
  if (rest_.size() > kLineBytesMax) rest_.clear();
}

}  // namespace muster::rclone
