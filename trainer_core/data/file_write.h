// Writing a small file so that a reader sees the old one or the whole new one, whatever happens.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/status.h>

namespace muster::trainer {

// Temporary name beside `path`, fsync, rename, fsync of the folder. The temporary file is gone
// after an error.
absl::Status write_file_atomically(const std::string& path, std::string_view bytes);

// Makes renames and new files in `folder` durable.
absl::Status sync_folder(const std::string& folder);

}  // namespace muster::trainer
