#include "trainer_core/text/folder_walk.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/text/natural_order.h"
#include "trainer_core/base/file_kind.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// The identity of a file or folder.
using Inode = std::pair<dev_t, ino_t>;

// Walks a folder: entries that are no links first, so that of two readable paths to a file the real
// one counts. Each folder is listed once, which also ends cycles of links.
class FolderWalk {
 public:
  FolderWalk(std::string root, const std::function<bool(const std::string&)>& is_readable,
             std::vector<IgnoredEntry>& ignored)
      : root_(std::move(root)), is_readable_(is_readable), ignored_(ignored) {}

  // Returns the paths of regular files in natural order.
  absl::StatusOr<std::vector<std::string>> run() {
    struct stat info {};
    if (stat(root_.c_str(), &info) != 0) return open_failure(errno, root_);
    folders_.emplace(inode_of(info), root_);
    if (auto status = list(root_); !status.ok()) return status;
    // A link may lead to folders with further links.
    while (!links_.empty()) {
      std::vector<std::string> links = std::exchange(links_, {});
      std::sort(links.begin(), links.end(), natural_less);
      for (const std::string& link : links) {
        if (auto status = follow(link); !status.ok()) return status;
      }
    }
    std::vector<std::string> names;
    for (const auto& [inode, path] : files_) names.push_back(path);
    for (const auto& [path, inode] : others_) {
      const std::string& first = files_.at(inode);
      ignored_.push_back({path, absl::StrCat("the same file as ", first), first});
    }
    std::sort(names.begin(), names.end(), natural_less);
    return names;
  }

 private:
  static Inode inode_of(const struct stat& info) { return {info.st_dev, info.st_ino}; }

  // Lists a folder and the real folders below it.
  absl::Status list(const std::string& top) {
    std::vector<std::string> waiting = {top};
    while (!waiting.empty()) {
      const std::string folder = std::move(waiting.back());
      waiting.pop_back();
      std::error_code error;
      fs::directory_iterator entry(folder, error);
      std::vector<std::string> paths;
      for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
        paths.push_back(entry->path().string());
        if (auto status = check_count(paths.size()); !status.ok()) return status;
      }
      if (error) return errno_status(error.value(), absl::StrCat("cannot list ", folder));
      std::sort(paths.begin(), paths.end(), natural_less);
      std::vector<std::string> below;
      for (const std::string& path : paths) {
        if (auto status = take(path, below); !status.ok()) return status;
      }
      // The first folder is on top.
      waiting.insert(waiting.end(), below.rbegin(), below.rend());
    }
    return absl::OkStatus();
  }

  absl::Status take(const std::string& path, std::vector<std::string>& folders) {
    if (fs::path(path).filename().string().starts_with(".")) {
      ignored_.push_back({path, "hidden"});
      return check_count(0);
    }
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0)
      return errno_status(errno, absl::StrCat("cannot examine ", path));
    if (S_ISLNK(info.st_mode)) {
      links_.push_back(path);
      return check_count(0);
    }
    return add(path, info, folders);
  }

  absl::Status follow(const std::string& link) {
    struct stat info {};
    if (stat(link.c_str(), &info) != 0) {
      const int error = errno;
      if (error == ELOOP) {
        return absl::InvalidArgumentError(
            absl::StrCat(link, " is a symbolic link that leads to itself; remove it"));
      }
      return open_failure(error, link);
    }
    std::vector<std::string> folders;
    if (auto status = add(link, info, folders); !status.ok()) return status;
    for (const std::string& folder : folders) {
      if (auto status = list(folder); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status add(const std::string& path, const struct stat& info,
                   std::vector<std::string>& folders) {
    if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) {
      ignored_.push_back({path, "neither a regular file nor a folder"});
      return check_count(0);
    }
    if (S_ISDIR(info.st_mode)) {
      const auto [first, is_new] = folders_.emplace(inode_of(info), path);
      if (is_new) {
        folders.push_back(path);
      } else {
        ignored_.push_back(
            {path, absl::StrCat("the same folder as ", first->second), first->second});
      }
      return check_count(0);
    }
    const auto [first, is_new] = files_.emplace(inode_of(info), path);
    if (!is_new) {
      // A link may have the name by which a file of a store can be read.
      const bool replaces = !is_readable_(first->second) && is_readable_(path);
      others_.emplace_back(replaces ? std::exchange(first->second, path) : path, first->first);
    }
    return check_count(0);
  }

  absl::Status check_count(size_t more) const {
    if (files_.size() + others_.size() + ignored_.size() + links_.size() + more <= kInputFilesMax)
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(root_, " has more than ", kInputFilesMax, " files; join them first"));
  }

  const std::string root_;
  const std::function<bool(const std::string&)>& is_readable_;
  std::vector<IgnoredEntry>& ignored_;
  std::vector<std::string> links_;  // not followed yet
  std::map<Inode, std::string> folders_;
  std::map<Inode, std::string> files_;                 // the path that is returned
  std::vector<std::pair<std::string, Inode>> others_;  // further paths to files
};

}  // namespace

absl::StatusOr<std::vector<std::string>> walk_folder(
    const std::string& root, const std::function<bool(const std::string&)>& is_readable,
    std::vector<IgnoredEntry>& ignored) {
  return FolderWalk(root, is_readable, ignored).run();
}

}  // namespace muster::trainer
