#include "worker/shell/ranks/launch_folders.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/files/errno_status.h"
#include "common/text/absl_view.h"
#include "common/text/canonical_number.h"
#include "common/text/escape.h"
#include "worker/shell/programs/program_dumps.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kConfigName[] = "config.json";
constexpr char kPagePrefix[] = "progress.";
constexpr char kStacksSuffix[] = ".stacks";  // as in self_stacks_path()
constexpr char kLogPrefix[] = "rank-";
constexpr char kLogSuffix[] = ".log";

// Bounds the search at a start to some seconds; the next start finds the rest.
constexpr size_t kFoldersFoundMax = 100'000;
constexpr size_t kShownNameBytesMax = 128;

bool is_number(absl::string_view text) {
  return canonical_number<int32_t>(sv(text)).value_or(-1) >= 0;
}

bool is_ours(absl::string_view name) {
  if (name == kConfigName || is_program_dump(sv(name))) return true;
  if (absl::ConsumePrefix(&name, kPagePrefix)) {
    absl::ConsumeSuffix(&name, kStacksSuffix);
    return is_number(name);
  }
  return absl::ConsumePrefix(&name, kLogPrefix) && absl::ConsumeSuffix(&name, kLogSuffix) &&
         is_number(name);
}

// Calls body(path, name) for each real folder in `folder`; skips links.
template <class Body>
void for_each_folder(const fs::path& folder, const Body& body) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code unreadable;
    if (it->symlink_status(unreadable).type() == fs::file_type::directory)
      body(it->path(), it->path().filename().string());
  }
}

}  // namespace

std::string LaunchFolders::folder(const LaunchKey& launch) const {
  return absl::StrCat(work_dir_, "/", launch.job.value(), "/", launch.attempt.value());
}

std::string LaunchFolders::config_path(const LaunchKey& launch) const {
  return absl::StrCat(folder(launch), "/", kConfigName);
}

std::string LaunchFolders::log_path(const RankKey& key) const {
  return absl::StrCat(folder(key.launch()), "/", kLogPrefix, key.rank.value(), kLogSuffix);
}

std::string LaunchFolders::page_path(const LaunchKey& launch, int32_t local_rank) const {
  return absl::StrCat(folder(launch), "/", kPagePrefix, local_rank);
}

std::vector<LaunchKey> LaunchFolders::find() const {
  std::vector<std::pair<fs::file_time_type, LaunchKey>> found;
  for_each_folder(work_dir_, [&](const fs::path& job_folder, const std::string& job_name) {
    const uint64_t job = canonical_number<uint64_t>(job_name).value_or(0);
    if (job == 0) return;
    for_each_folder(job_folder, [&](const fs::path& folder, const std::string& attempt_name) {
      const uint32_t attempt = canonical_number<uint32_t>(attempt_name).value_or(0);
      if (attempt == 0) return;
      // This file is written at each start of the launch; the folder's own time changes with every
      // file in it.
      std::error_code error;
      const auto time = fs::last_write_time(folder / kConfigName, error);
      if (!error && found.size() < kFoldersFoundMax)
        found.push_back({time, {JobId(job), Attempt(attempt)}});
    });
  });
  std::sort(found.begin(), found.end());
  std::vector<LaunchKey> launches;
  for (const auto& [time, launch] : found) launches.push_back(launch);
  return launches;
}

absl::Status LaunchFolders::remove(const LaunchKey& launch) const {
  const std::string path = folder(launch);
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::not_found) return absl::OkStatus();
  if (type != fs::file_type::directory)
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a folder"));
  std::vector<fs::path> ours;
  std::string other;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code unreadable;
    const std::string name = it->path().filename().string();
    const fs::file_type kind = it->symlink_status(unreadable).type();
    if (is_ours(name) && (kind == fs::file_type::regular || kind == fs::file_type::fifo)) {
      ours.push_back(it->path());
    } else {
      other = name;
    }
  }
  for (const fs::path& file : ours) {
    if (unlink(file.c_str()) != 0 && errno != ENOENT)
      return errno_status(errno, absl::StrCat("removing ", file.string()));
  }
  if (!other.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " holds ", printable(other, kShownNameBytesMax), ", which the worker did not make"));
  }
  if (rmdir(path.c_str()) != 0 && errno != ENOENT)
    return errno_status(errno, absl::StrCat("removing ", path));
  // The job's folder is removed with its last attempt.
  rmdir(fs::path(path).parent_path().c_str());
  return absl::OkStatus();
}

}  // namespace muster::worker
