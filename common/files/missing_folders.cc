#include "common/files/missing_folders.h"

#include <system_error>

namespace muster {

namespace fs = std::filesystem;

std::vector<fs::path> missing_folders(const fs::path& path) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path at = path;
       !at.empty() && fs::symlink_status(at, error).type() == fs::file_type::not_found;
       at = at.parent_path()) {
    missing.push_back(at);
  }
  return missing;
}

void remove_empty(const std::vector<fs::path>& folders) {
  std::error_code error;
  for (const fs::path& folder : folders) fs::remove(folder, error);
}

}  // namespace muster
