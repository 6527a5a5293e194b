// Paths that name the checkpoint of the best evaluation of a run: RUN/best.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "common/objects/object_url.h"

namespace muster::trainer {

constexpr std::string_view kBestCheckpoint = "/best";

// Returns whether `path` ends with "/best" and nothing of that name exists.
inline bool names_best(const std::string& path) {
  std::error_code error;
  return path.ends_with(kBestCheckpoint) &&
         (is_object_url(path) || !std::filesystem::exists(path, error));
}

// Returns `path`, which names a best checkpoint, without its last part.
inline std::string run_of_best(const std::string& path) {
  return path.substr(0, path.size() - kBestCheckpoint.size());
}

}  // namespace muster::trainer
