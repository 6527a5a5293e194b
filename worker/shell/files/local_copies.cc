#include "worker/shell/files/local_copies.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "common/text/canonical_number.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

std::string prefix_of(StoreId store) {
  return absl::StrCat("muster-", geteuid(), "-", store.value(), "-");
}

void remove_folder(const std::string& folder) {
  struct stat info {};
  if (lstat(folder.c_str(), &info) != 0) return;
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid()) return;
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) {
    spdlog::warn("local checkpoints stay in {}: {}", folder, error.message());
  } else {
    spdlog::info("local checkpoints in {} are removed: their job has ended", folder);
  }
}

}  // namespace

std::string LocalCopies::folder(StoreId store, JobId job) const {
  return absl::StrCat(root_, "/", prefix_of(store), job.value());
}

std::vector<std::string> LocalCopies::folders_but(StoreId store,
                                                  const std::set<JobId>& jobs) const {
  const std::string prefix = prefix_of(store);
  std::vector<std::string> folders;
  std::error_code error;
  // Not a range-for, which throws if the disk fails in the middle.
  fs::directory_iterator entry(root_, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const auto job = canonical_number<uint64_t>(name.substr(prefix.size()));
    if (job && !jobs.contains(JobId(*job))) folders.push_back(entry->path().string());
  }
  return folders;
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
