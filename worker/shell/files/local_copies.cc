#include "worker/shell/files/local_copies.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <spdlog/spdlog.h>

#include "common/files/user_rights.h"
#include "common/text/canonical_number.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

void remove_folder(const std::string& folder) {
  struct stat info {};
  if (lstat(folder.c_str(), &info) != 0) return;
  if (!S_ISDIR(info.st_mode) || (geteuid() != 0 && info.st_uid != geteuid())) return;
  std::error_code error;
  {
    // A link that replaces a folder meanwhile leads nowhere.
    const auto owner = foreign_owner(folder);
    if (!owner && info.st_uid != geteuid()) return;
    const FileRights rights(owner);
    if (!rights.status().ok()) return;
    fs::remove_all(folder, error);
  }
  if (error) {
    spdlog::warn("local checkpoints stay in {}: {}", folder, error.message());
  } else {
    spdlog::info("local checkpoints in {} are removed: their job has ended", folder);
  }
}

}  // namespace

std::string LocalCopies::folder(StoreId store, JobId job, uid_t user) const {
  return absl::StrCat(root_, "/muster-", user, "-", store.value(), "-", job.value());
}

std::vector<std::string> LocalCopies::folders_if(
    StoreId store, const std::function<bool(JobId)>& is_wanted) const {
  std::vector<std::string> folders;
  std::error_code error;
  // Not a range-for, which throws if the disk fails in the middle.
  fs::directory_iterator entry(root_, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::vector<std::string> parts = absl::StrSplit(entry->path().filename().string(), '-');
    if (parts.size() != 4 || parts[0] != "muster") continue;
    const auto user = canonical_number<uid_t>(parts[1]);
    const auto job = canonical_number<uint64_t>(parts[3]);
    if (!user || (!has_users_ && *user != geteuid()) ||
        canonical_number<uint64_t>(parts[2]) != store.value())
      continue;
    struct stat info {};
    // The name proves nothing: any user can make a folder with it.
    const bool is_theirs = lstat(entry->path().c_str(), &info) == 0 && info.st_uid == *user;
    if (job && is_theirs && is_wanted(JobId(*job))) folders.push_back(entry->path().string());
  }
  return folders;
}

std::vector<std::string> LocalCopies::folders_of(StoreId store, JobId job) const {
  return folders_if(store, [job](JobId one) { return one == job; });
}

std::vector<std::string> LocalCopies::folders_but(StoreId store,
                                                  const std::set<JobId>& jobs) const {
  return folders_if(store, [&jobs](JobId job) { return !jobs.contains(job); });
}

FolderRemover::FolderRemover() : thread_([this] { run(); }) {}

FolderRemover::~FolderRemover() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FolderRemover::remove(std::string folder) {
  {
    const std::lock_guard lock(mutex_);
    folders_.push_back(std::move(folder));
  }
  changed_.notify_all();
}

void FolderRemover::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return leaving_ || !folders_.empty(); });
    if (folders_.empty()) return;
    const std::string folder = std::exchange(folders_.front(), {});
    folders_.pop_front();
    lock.unlock();
    remove_folder(folder);
    lock.lock();
  }
}

}  // namespace muster::worker
