#include "common/objects/object_store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/objects/rclone_output.h"
#include "common/objects/store_failure.h"
#include "common/text/absl_view.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using store::endpoint_of;
using store::first_variable;
using store::kTool;
using store::missing_tool;
using store::status_of;
using store::variable;
using store::way_out;

constexpr char kRemote[] = "musterstore";
// Limit of a call that transfers no data. rclone itself repeats single requests within it.
constexpr Duration kAnswerWithin = std::chrono::minutes(2);
// A listing of 100,000 objects takes about a minute.
constexpr Duration kListWithin = std::chrono::minutes(10);
// Limit of a transfer. One that stands still ends much earlier, by rclone's --timeout.
constexpr Duration kTransferWithin = std::chrono::hours(24);
constexpr Duration kFirstWait = std::chrono::seconds(1);
constexpr Duration kLongestWait = std::chrono::seconds(30);
// A call that is not repeated has so long, too.
constexpr Duration kShortestAttempt = std::chrono::seconds(20);
constexpr Duration kWaitStep = std::chrono::milliseconds(100);
constexpr size_t kErrorsBytesMax = size_t{16} << 20;  // 100,000 copied objects

// rclone's own variables that it gets. Others may filter files or only pretend to copy them.
constexpr std::string_view kVariablesOfTool[] = {
    "RCLONE_S3_",   "RCLONE_GCS_",     "RCLONE_BWLIMIT=", "RCLONE_TPSLIMIT",
    "RCLONE_BIND=", "RCLONE_CA_CERT=", "RCLONE_CLIENT_",  "RCLONE_NO_CHECK_CERTIFICATE="};

std::string remote_path(const ObjectUrl& url) {
  return absl::StrCat(kRemote, ":", url.bucket, url.key.empty() ? "" : "/", url.key);
}

// Calls `use` with a temporary file that lists `names`.
template <class Use>
absl::Status with_list(const std::vector<std::string>& names, const Use& use) {
  std::error_code error;
  std::string list = (fs::temp_directory_path(error) / "muster-objects-XXXXXX").string();
  const int fd = error ? -1 : mkostemp(list.data(), O_CLOEXEC);
  if (fd < 0) return file_status(error ? error.value() : errno, "a temporary file");
  const absl::Cleanup remove_list = [&] { unlink(list.c_str()); };
  const absl::Status written = write_all(fd, absl::StrJoin(names, "\n") + "\n");
  close(fd);
  return written.ok() ? use(absl::StrCat("--files-from-raw=", list)) : written;
}

bool is_copy(const std::vector<std::string>& words) { return words[0] == "copy"; }

// Returns whether a call may work for minutes before it prints anything.
bool works_silently(const std::vector<std::string>& words) {
  return is_copy(words) || words[0] == "delete";
}

// Returns whether `status` is about the connection to the store.
bool names_endpoint(const absl::Status& status, const ObjectUrl& url) {
  return sv(status.message()).find(endpoint_of(url)) != std::string_view::npos;
}

bool is_passed_on(std::string_view entry) {
  // rclone 1.60 fails with AWS_CA_BUNDLE, and has --ca-cert.
  if (entry.starts_with("AWS_CA_BUNDLE=")) return false;
  return !entry.starts_with("RCLONE_") ||
         std::ranges::any_of(kVariablesOfTool,
                             [&](std::string_view prefix) { return entry.starts_with(prefix); });
}

}  // namespace

Duration store_wait() {
  const auto text = variable("MUSTER_STORE_WAIT_SECONDS");
  int64_t seconds = 0;
  constexpr int64_t kDay = 24 * 3600;
  if (!text || !absl::SimpleAtoi(*text, &seconds) || seconds < 0) return kStoreWait;
  return std::chrono::seconds(std::min(seconds, kDay));
}

void print_store_warning(const std::string& text) {
  std::cerr << "muster: warning: " << text << std::endl;
}

std::vector<std::string> store_environment(const ObjectUrl& url) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (is_passed_on(*entry)) environment.emplace_back(*entry);
  }
  const auto set = [&](std::string_view option, std::string_view value) {
    environment.push_back(absl::StrCat("RCLONE_CONFIG_MUSTERSTORE_", av(option), "=", av(value)));
  };
  set("NO_CHECK_BUCKET", "true");
  set("ENV_AUTH", "true");
  if (url.scheme == "gs") {
    set("TYPE", "google cloud storage");
    set("BUCKET_POLICY_ONLY", "true");  // buckets with uniform access refuse lists of rights
    if (const auto emulator = variable("STORAGE_EMULATOR_HOST")) {
      set("ENDPOINT", absl::StrCat(is_remote(*emulator) ? "" : "http://",
                                   absl::StripSuffix(*emulator, "/"), "/storage/v1/"));
      set("ANONYMOUS", "true");
    }
    return environment;
  }
  const auto endpoint = first_variable({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  set("TYPE", "s3");
  set("PROVIDER", endpoint ? "Other" : "AWS");
  if (endpoint) set("ENDPOINT", *endpoint);
  if (const auto region = first_variable({"AWS_REGION", "AWS_DEFAULT_REGION"}))
    set("REGION", *region);
  set("CHUNK_SIZE", "16Mi");  // 10,000 parts of 5 MiB would limit an object to 48 GiB
  return environment;
}

absl::StatusOr<std::string> ObjectStore::try_call(const ObjectUrl& url,
                                                  const std::vector<std::string>& words,
                                                  const Limits& limits, const StoreWatch& watch,
                                                  Instant first_answer_by, bool& advanced) const {
  std::vector<std::string> command = {kTool};
  command.insert(command.end(), words.begin(), words.end());
  for (const char* option : {"--config=", "--retries=1", "--contimeout=5s", "--timeout=60s"})
    command.emplace_back(option);
  const bool copies = is_copy(words);
  // rclone and its library multiply the repetitions: 1 makes 8 attempts to connect, 3 makes 15.
  command.emplace_back(copies ? "--low-level-retries=3" : "--low-level-retries=1");
  rclone::StatsReader stats(limits.meter);
  if (limits.meter) {
    command.push_back(absl::StrCat("--stats=", to_seconds(kStoreStatsInterval), "s"));
    command.emplace_back("--stats-one-line");
  } else {
    command.emplace_back("--stats=0");
  }
  command.emplace_back(copies ? "--log-level=INFO" : "--log-level=ERROR");
  if (const auto bundle = variable("AWS_CA_BUNDLE"); bundle && url.scheme == "s3")
    command.push_back(absl::StrCat("--ca-cert=", *bundle));
  auto end =
      tool_(command, {.deadline = monotonic_now() + limits.within,
                      .first_output_by = first_answer_by,
                      .output_bytes_max = limits.output_bytes_max,
                      .errors_bytes_max = kErrorsBytesMax,
                      .environment = store_environment(url),
                      .own_group = retry_.survives_signals,
                      .watch = watch,
                      .on_errors = limits.meter ? [&](std::string_view text) { stats.add(text); }
                                                : std::function<void(std::string_view)>()});
  if (absl::IsNotFound(end.status())) return missing_tool(url.text());
  if (absl::IsCancelled(end.status())) return end.status();
  // A repetition has the same answer.
  if (absl::IsResourceExhausted(end.status()))
    return absl::InvalidArgumentError(
        absl::StrCat(url.text(), ": the answer has more than ", limits.output_bytes_max, " bytes"));
  if (absl::IsDeadlineExceeded(end.status())) {
    return absl::UnknownError(absl::StrCat(url.text(), ": ", endpoint_of(url), " does not answer"));
  }
  if (!end.ok()) return absl::UnknownError(absl::StrCat(url.text(), ": ", end.status().message()));
  advanced = !copies || rclone::take_copied(end->errors);
  if (end->exit_code == 0) return std::move(end->output);
  return status_of(url, *end);
}

absl::StatusOr<std::string> ObjectStore::call(const ObjectUrl& url,
                                              const std::vector<std::string>& words,
                                              const Limits& limits, const StoreWatch& watch) const {
  const bool copies = is_copy(words);
  const Instant begin = monotonic_now();
  // A transfer may fail after hours of success. Any other call has failed since it began, unless
  // its first attempt worked for longer than the limit.
  Instant failing_since = begin;
  bool is_failing = false;
  absl::Status cause;  // the newest one that the store or the network has stated
  Instant warned{};
  bool is_silent = !copies;
  Duration wait = kFirstWait;
  const auto hurried = [&] { return retry_.is_hurried && retry_.is_hurried(); };
  const auto limit = [&] {
    return hurried() ? std::min(retry_.within_hurry, retry_.within) : retry_.within;
  };
  const StoreWatch watch_silence = [&] {
    if (is_silent && retry_.warn && monotonic_now() - begin >= retry_.silence) {
      is_silent = false;
      retry_.warn(absl::StrCat(url.text(), ": no answer yet from ", endpoint_of(url), "; waiting"));
    }
    return !watch || watch();
  };
  while (true) {
    bool advanced = false;
    const Instant answer_by =
        works_silently(words) ? Instant::max() : begin + std::max(limit(), kShortestAttempt);
    auto result = try_call(url, words, limits, watch_silence, answer_by, advanced);
    if (result.ok()) return result;
    if (!absl::IsUnknown(result.status()) &&
        !(retry_.also_permanent && absl::IsPermissionDenied(result.status())))
      return result;
    const Instant now = monotonic_now();
    const bool is_first = !std::exchange(is_failing, true);
    const bool has_worked = is_first && advanced && now - begin > limit();
    if (copies ? is_first || advanced : has_worked) failing_since = now;
    if (copies && advanced) wait = kFirstWait;
    if (cause.ok() || now < answer_by) cause = result.status();
    const Instant tried_since = copies ? failing_since : begin;
    if (now + wait - failing_since > limit()) {
      return absl::Status(cause.code(),
                          absl::StrCat(cause.message(), "; tried for ",
                                       static_cast<int64_t>(to_seconds(now - tried_since)), " s",
                                       names_endpoint(cause, url) ? way_out(url) : ""));
    }
    if (retry_.warn && (warned == Instant{} || now - warned >= kStoreWarningInterval)) {
      warned = now;
      is_silent = false;
      retry_.warn(absl::StrCat(cause.message(), "; it is tried again"));
    }
    const bool was_hurried = hurried();
    for (const Instant until = now + wait; monotonic_now() < until && hurried() == was_hurried;) {
      if (watch && !watch()) return absl::CancelledError(absl::StrCat(url.text(), ": stopped"));
      std::this_thread::sleep_for(kWaitStep);
    }
    wait = std::min(2 * wait, kLongestWait);
  }
}

absl::StatusOr<std::vector<StoredObject>> ObjectStore::list(const std::string& url) const {
  const auto parsed = parse_object_url(url);
  if (!parsed.ok()) return parsed.status();
  // Size, time and path, separated by tabs. The time is the one that the store lists anyway.
  const auto text = call(*parsed,
                         {"lsf", "--recursive", "--files-only", "--use-server-modtime",
                          "--format=stp", "--separator=\t", remote_path(*parsed)},
                         {kListWithin});
  if (!text.ok()) return text.status();
  std::vector<StoredObject> objects;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> columns = absl::StrSplit(line, absl::MaxSplits('\t', 2));
    uint64_t bytes = 0;
    if (columns.size() != 3 || !absl::SimpleAtoi(columns[0], &bytes) || columns[2].empty())
      return absl::UnknownError(absl::StrCat(url, ": a listing that cannot be read: ", line));
    objects.push_back({.name = columns[2], .bytes = bytes, .changed = columns[1]});
  }
  std::ranges::sort(objects, {}, &StoredObject::name);
  return objects;
}

absl::StatusOr<std::vector<std::string>> ObjectStore::list_names(const std::string& url) const {
  const auto parsed = parse_object_url(url);
  if (!parsed.ok()) return parsed.status();
  const auto text =
      call(*parsed, {"lsf", "--use-server-modtime", remote_path(*parsed)}, {kListWithin});
  if (!text.ok()) return text.status();
  std::vector<std::string> names = absl::StrSplit(*text, '\n', absl::SkipEmpty());
  std::ranges::sort(names);
  return names;
}

absl::StatusOr<std::string> ObjectStore::read(const std::string& url, size_t bytes_max) const {
  const auto parsed = parse_object_url(url);
  if (!parsed.ok()) return parsed.status();
  auto text = call(*parsed, {"cat", absl::StrCat("--head=", bytes_max + 1), remote_path(*parsed)},
                   {kListWithin, bytes_max + 1});
  // rclone prints nothing for an object that does not exist.
  if (text.ok() && text->empty())
    return absl::NotFoundError(absl::StrCat("there is no object ", url));
  if (text.ok() && text->size() > bytes_max)
    return absl::InvalidArgumentError(absl::StrCat(url, " has more than ", bytes_max, " bytes"));
  return text;
}

absl::Status ObjectStore::copy(const std::vector<std::string>& names, const std::string& from,
                               const std::string& to, const ObjectUrl& url, const StoreWatch& watch,
                               const StoreMeter& meter) const {
  if (names.empty()) return absl::OkStatus();
  return with_list(names, [&](const std::string& list) {
    return call(url, {"copy", list, "--no-traverse", "--transfers=8", from, to},
                {.within = kTransferWithin, .meter = meter}, watch)
        .status();
  });
}

absl::Status ObjectStore::download(const std::string& url, const std::vector<std::string>& names,
                                   const std::string& folder, const StoreWatch& watch) const {
  const auto parsed = parse_object_url(url);
  if (!parsed.ok()) return parsed.status();
  return copy(names, remote_path(*parsed), folder, *parsed, watch, nullptr);
}

absl::Status ObjectStore::upload(const std::string& folder, const std::vector<std::string>& names,
                                 const std::string& url, const StoreWatch& watch,
                                 const StoreMeter& meter) const {
  const auto parsed = parse_object_url(url);
  if (!parsed.ok()) return parsed.status();
  return copy(names, folder, remote_path(*parsed), *parsed, watch, meter);
}

absl::Status ObjectStore::remove(const std::string& url) const {
  const auto parsed = parse_object_url(url);
  if (!parsed.ok()) return parsed.status();
  const absl::Status status =
      call(*parsed, {"deletefile", remote_path(*parsed)}, {kAnswerWithin}).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::Status ObjectStore::remove_files(const std::string& url,
                                       const std::vector<std::string>& names) const {
  if (names.empty()) return absl::OkStatus();
  const auto parsed = parse_object_url(url);
  if (!parsed.ok()) return parsed.status();
  const absl::Status status = with_list(names, [&](const std::string& list) {
    return call(*parsed, {"delete", list, remote_path(*parsed)}, {kListWithin}).status();
  });
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace muster
