// Paths that name the checkpoint of the best evaluation of a run: RUN/best.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "common/objects/object_url.h"

namespace muster::trainer {

constexpr std::string_view kBestCheckpoint = "/best";

// Returns `path` without slashes at its end.
inline std::string without_end_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// Returns whether `path` ends with "/best" and nothing of that name exists. Callers have to
// list the objects at an address first.
inline bool names_best(const std::string& path) {
  std::error_code error;
  return without_end_slashes(path).ends_with(kBestCheckpoint) &&
         (is_object_url(path) || !std::filesystem::exists(path, error));
}

// Returns `path`, which names a best checkpoint, without its last part.
inline std::string run_of_best(const std::string& path) {
  const std::string plain = without_end_slashes(path);
  return plain.substr(0, plain.size() - kBestCheckpoint.size());
}

}  // namespace muster::trainer
