#include "worker/stacks/kernel_messages.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>

#include "common/job/rank_evidence.h"
#include "common/text/absl_view.h"
#include "worker/stacks/demangle.h"

namespace muster::worker {
namespace {

constexpr size_t kRecordBytesMax = 8192;  // the kernel's own bound
// the kernel's buffer has some ten thousand; new ones may come during the read
constexpr size_t kRecordsMax = 100'000;

// The oscillators of servers, which NTP corrects, are off by less than 200 parts per million.
constexpr Duration kClockErrorMin = std::chrono::seconds(2);
constexpr int64_t kClockErrorPart = 5000;
// A crash that ends a rank precedes the end by less: a data loader's parent reports it at once.
constexpr Duration kCrashBeforeEndMax = std::chrono::seconds(10);

// Substrings, in lower case, of messages that explain a death or a stall.
constexpr std::array<std::string_view, 20> kRelevantWords = {
    "out of memory",  "oom-kill",      "invoked oom-killer", "oom_reaper",
    "nvrm: xid",      "nvlink",        "hung_task",          "blocked for more than",
    "i/o error",      "buffer i/o",    "ext4-fs error",      "xfs",
    "remounting",     "nfs: server",   "lustreerror",        "soft lockup",
    "hardware error", "machine check", "segfault",           "general protection",
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Returns whether `text` has the number as a separate word.
bool names_pid(std::string_view text, pid_t pid) {
  const std::string number = absl::StrCat(pid);
  for (size_t at = text.find(number); at != std::string_view::npos;
       at = text.find(number, at + 1)) {
    const size_t end = at + number.size();
    const bool begins = at == 0 || (!is_digit(text[at - 1]) && text[at - 1] != '.');
    const bool ends = end == text.size() || (!is_digit(text[end]) && text[end] != '.');
    // "123kB", "0x123", "+123/0x" are values, not processes. Pids follow a blank, a bracket, a
    // colon, an equals sign or a slash.
    const bool after_mark =
        at == 0 || std::string_view(" [(:=/").find(text[at - 1]) != std::string_view::npos;
    const bool before_mark =
        end == text.size() || std::string_view(" ]),:;").find(text[end]) != std::string_view::npos;
    if (begins && ends && after_mark && before_mark) return true;
  }
  return false;
}

// A record with its whole text: the pid of a kill for memory follows the paths of control groups,
// which may be longer than a line of evidence.
struct Record {
  Instant at;
  std::string_view text;
};

// Parses "6,1234,987654321,-;text\n KEY=value": level, number, microseconds, flags.
std::optional<Record> parse_record(std::string_view record) {
  const size_t semicolon = record.find(';');
  if (semicolon == std::string_view::npos) return std::nullopt;
  const std::vector<absl::string_view> head = absl::StrSplit(av(record.substr(0, semicolon)), ',');
  int64_t microseconds = 0;
  if (head.size() < 3 || !absl::SimpleAtoi(head[2], &microseconds) || microseconds < 0 ||
      microseconds > INT64_MAX / 1000) {
    return std::nullopt;
  }
  std::string_view text = record.substr(semicolon + 1);
  text = text.substr(0, text.find('\n'));
  return Record{.at = Instant(std::chrono::microseconds(microseconds)), .text = text};
}

// Returns the number after `mark` in `text`; 0 if there is none.
pid_t number_after(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return 0;
  const std::string_view rest = text.substr(at + mark.size());
  pid_t number = 0;
  const size_t end = std::min(rest.find_first_not_of("0123456789"), rest.size());
  return absl::SimpleAtoi(av(rest.substr(0, end)), &number) ? number : 0;
}

// The process that a message about a crash or a kill for memory names.
struct NamedProcess {
  pid_t pid = 0;  // 0: the message is about something else
  bool crashed = false;
};

// Finds the process in messages, in lower case, such as "Memory cgroup out of memory: Killed
// process 17 (python)", "python[17]: segfault at 0", "traps: python[17] general protection fault"
// and "oom_reaper: reaped process 17 (python)".
NamedProcess named_process(std::string_view lower) {
  for (const std::string_view mark : {"killed process ", "reaped process "})
    if (const pid_t pid = number_after(lower, mark); pid > 0) return {.pid = pid};
  if (lower.starts_with("oom-kill:")) return {.pid = number_after(lower, ",pid=")};
  const bool is_crash = lower.find("segfault") != std::string_view::npos ||
                        lower.find("general protection") != std::string_view::npos ||
                        lower.starts_with("traps: ");
  if (!is_crash) return {};
  return {.pid = number_after(lower, "["), .crashed = true};
}

bool is_in_groups(std::string_view memory_group, const KernelMessageQuery& query) {
  return std::ranges::any_of(query.groups, [&](const std::string& group) {
    return group.size() > 1 && memory_group.starts_with(group) &&
           (memory_group.size() == group.size() || memory_group[group.size()] == '/');
  });
}

// Returns the pids that the kernel killed for memory in the control groups of the query, from its
// records "oom-kill:constraint=CONSTRAINT_MEMCG,…,task_memcg=/jobs/7,task=python,pid=17,uid=0".
std::set<pid_t> killed_in_groups(std::span<const Record> records, const KernelMessageQuery& query) {
  std::set<pid_t> pids;
  for (const Record& record : records) {
    constexpr std::string_view kMark = "task_memcg=";
    const size_t at = record.text.find(kMark);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = record.text.substr(at + kMark.size());
    const pid_t pid = number_after(rest, ",pid=");
    if (pid > 0 && is_in_groups(rest.substr(0, rest.find(',')), query)) pids.insert(pid);
  }
  return pids;
}

// Returns whether the process that a message names may be one of the query's.
bool may_be_ours(const NamedProcess& process, Instant at, const KernelMessageQuery& query,
                 const std::set<pid_t>& killed) {
  if (query.foreign_pids || killed.contains(process.pid) ||
      std::ranges::find(query.pids, process.pid) != query.pids.end()) {
    return true;
  }
  // The message has the id of a thread, and data loaders have pids of their own.
  return process.crashed && at >= query.until - kCrashBeforeEndMax - kernel_clock_error(at);
}

bool is_relevant(const Record& record, const KernelMessageQuery& query,
                 const std::set<pid_t>& killed) {
  const Duration error = kernel_clock_error(record.at);
  if (record.at < query.since - error || record.at - error > query.until) return false;
  const std::string lower = absl::AsciiStrToLower(av(record.text));
  if (const NamedProcess process = named_process(lower); process.pid > 0)
    return may_be_ours(process, record.at, query, killed);
  const bool telling = std::ranges::any_of(kRelevantWords, [&](std::string_view words) {
    return lower.find(words) != std::string::npos;
  });
  return telling || (!query.foreign_pids && std::ranges::any_of(query.pids, [&](pid_t pid) {
           return names_pid(record.text, pid);
         }));
}

}  // namespace

Duration kernel_clock_error(Instant at) {
  return kClockErrorMin + at.time_since_epoch() / kClockErrorPart;
}

bool has_foreign_pids(const std::string& proc_root) {
  // the inode of the namespace in which the kernel starts, which is a constant of the kernel
  constexpr std::string_view kInitial = "pid:[4026531836]";
  std::error_code error;
  const auto space = std::filesystem::read_symlink(proc_root + "/self/ns/pid", error);
  return !error && space != kInitial;
}

std::vector<KernelMessage> relevant_kernel_messages(std::span<const std::string> records,
                                                    const KernelMessageQuery& query) {
  std::vector<Record> parsed;
  for (const std::string& record : records)
    if (const auto one = parse_record(record)) parsed.push_back(*one);
  const std::set<pid_t> killed = killed_in_groups(parsed, query);
  std::erase_if(parsed, [&](const Record& record) { return !is_relevant(record, query, killed); });
  if (parsed.size() > kKernelMessagesMax)
    parsed.erase(parsed.begin(), parsed.end() - static_cast<ptrdiff_t>(kKernelMessagesMax));
  std::vector<KernelMessage> messages;
  for (const Record& record : parsed)
    messages.push_back(
        {.at = record.at, .text = bounded_text(std::string(record.text), kEvidenceLineBytesMax)});
  return messages;
}

std::vector<KernelMessage> read_kernel_messages(const std::string& path,
                                                const KernelMessageQuery& query) {
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return {};
  absl::Cleanup close_log = [&] { close(fd); };
  std::vector<std::string> records;
  std::vector<char> buffer(kRecordBytesMax);
  for (size_t i = 0; i < kRecordsMax; ++i) {
    // Each read returns one record. EPIPE: the record was overwritten before the read; the next one
    // is available.
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (got <= 0) break;
    records.emplace_back(buffer.data(), static_cast<size_t>(got));
  }
  return relevant_kernel_messages(records, query);
}

bool reports_oom_kill(std::span<const KernelMessage> messages, pid_t pid) {
  const std::string killed = absl::StrCat("Killed process ", pid, " ");
  return std::ranges::any_of(messages, [&](const KernelMessage& message) {
    return message.text.find(killed) != std::string::npos;
  });
}

uint64_t killed_process_bytes(std::span<const KernelMessage> messages, pid_t pid) {
  const std::string killed = absl::StrCat("Killed process ", pid, " ");
  for (const KernelMessage& message : messages) {
    if (message.text.find(killed) == std::string::npos) continue;
    uint64_t kib = 0;
    for (const std::string_view mark : {"anon-rss:", "file-rss:", "shmem-rss:"})
      kib += static_cast<uint64_t>(number_after(message.text, mark));
    return kib << 10;
  }
  return 0;
}

std::string kernel_message_text(const KernelMessage& message) {
  return absl::StrFormat("[%.6f] %s", to_seconds(message.at.time_since_epoch()), message.text);
}

}  // namespace muster::worker
