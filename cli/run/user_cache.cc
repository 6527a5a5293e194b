#include "cli/run/user_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

// The XDG base directory specification requires absolute paths.
fs::path cache_root() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/')
    return cache;
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? fs::path(home) / ".cache" : fs::path();
}

}  // namespace

std::string user_cache_file(const std::string& name) {
  const fs::path root = cache_root();
  if (root.empty()) return "";
  const fs::path folder = root / "muster";
  std::error_code error;
  fs::create_directories(folder, error);
  return fs::is_directory(folder, error) ? (folder / name).string() : "";
}

bool is_first_time(const std::string& name) {
  const std::string path = user_cache_file(name);
  if (path.empty()) return true;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return errno != EEXIST;
  close(fd);
  return true;
}

}  // namespace muster::cli
