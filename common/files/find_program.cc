#include "common/files/find_program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Bounds of the values that an error message contains.
constexpr size_t kShownNameBytesMax = 256;
constexpr size_t kShownPathBytesMax = 512;

bool is_file(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// Checks the thread's own rights, which may be those of another user (FileRights).
bool is_executable(const std::string& file) {
  return faccessat(AT_FDCWD, file.c_str(), X_OK, AT_EACCESS) == 0;
}

// Returns an error for a path that is no file.
absl::Status no_file(const std::string& file) {
  const std::string shown = printable(file, kShownPathBytesMax);
  std::error_code error;
  if (fs::is_directory(file, error))
    return absl::NotFoundError(absl::StrCat("there is no program ", shown, ", but a folder"));
  const fs::path target = fs::read_symlink(file, error);
  if (!error) {
    return absl::NotFoundError(
        absl::StrCat("there is no program ", shown, ": it is a symbolic link to ",
                     printable(target.string(), kShownPathBytesMax), ", which does not exist"));
  }
  return absl::NotFoundError(absl::StrCat("there is no program ", shown));
}

// A file system that is mounted with noexec denies execution whatever the file's mode is.
absl::Status not_executable(const std::string& file) {
  struct statvfs system {};
  const bool is_noexec = statvfs(file.c_str(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0;
  return absl::PermissionDeniedError(
      absl::StrCat(printable(file, kShownPathBytesMax), " cannot be executed: ",
                   is_noexec ? "its file system is mounted with noexec; move it, or name "
                             : "chmod +x, or name ",
                   "its interpreter in front (python3 FILE, bash FILE)"));
}

}  // namespace

absl::StatusOr<std::string> find_program(const std::string& name, std::string_view path,
                                         const std::string& directory) {
  if (name.empty()) return absl::NotFoundError("a program's name is empty");
  if (name.find('/') != std::string::npos) {
    const std::string file = (fs::path(directory) / name).lexically_normal().string();
    if (!is_file(file)) return no_file(file);
    if (!is_executable(file)) return not_executable(file);
    return file;
  }
  std::string refused;
  for (const absl::string_view folder : absl::StrSplit(av(path), ':')) {
    const std::string file = (fs::path(directory) / std::string(folder) / name).string();
    if (!is_file(file)) continue;
    if (is_executable(file)) return file;
    if (refused.empty()) refused = file;
  }
  if (!refused.empty()) return not_executable(refused);
  const bool is_here = is_file((fs::path(directory) / name).string());
  return absl::NotFoundError(
      absl::StrCat("there is no program ", printable(name, kShownNameBytesMax),
                   " in PATH=", printable(path, kShownPathBytesMax),
                   is_here ? absl::StrCat("; the file in ", directory, " would be ./", name) : ""));
}

absl::StatusOr<std::string> find_program_in_path(const std::string& name) {
  const char* const path = std::getenv("PATH");
  return find_program(name, path == nullptr ? "" : path, "/");
}

}  // namespace muster
