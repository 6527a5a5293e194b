#include "cli/run/user_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "common/files/user_cache.h"

namespace muster::cli {

std::string user_cache_file(const std::string& name) {
  const std::string folder = user_cache_folder();
  if (folder.empty()) return "";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return std::filesystem::is_directory(folder, error) ? folder + "/" + name : "";
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
