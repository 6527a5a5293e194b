#include "common/free_space.h"

#include <sys/statvfs.h>

namespace muster {

std::optional<uint64_t> free_space_bytes(const std::string& path) {
  struct statvfs disk {};
  if (statvfs(path.c_str(), &disk) != 0) return std::nullopt;
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

}  // namespace muster
