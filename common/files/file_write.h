// Writes files so that the disk never holds a partial result. Thread-safe; no state.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include <absl/status/status.h>

namespace muster {

// The event that a file written by write_file_atomically() survives.
enum class Durability {
  // end of this process: for files that are written again when the machine restarts
  kProcess,
  // power loss: syncs the file and its name, which takes milliseconds
  kPowerLoss,
};

struct FileWriteOptions {
  Durability durability = Durability::kProcess;
  // Permission bits of the file, independent of the umask. nullopt: 0666 less the umask.
  std::optional<mode_t> mode = std::nullopt;
};

// Writes `content` to `path` through a temporary file beside it and a rename. Readers, also after a
// crash, find either the old content or the complete new content. After an error the old content
// remains and no temporary file is left. Errors name the path.
absl::Status write_file_atomically(const std::string& path, std::string_view content,
                                   const FileWriteOptions& options = {});

// Writes all of `bytes` at the descriptor's position; continues after partial writes and signals.
absl::Status write_all(int fd, std::string_view bytes);
// Writes a program's result to standard output as write_all() does. Returns OK if the reader has
// closed the pipe (`| head`).
absl::Status write_result(std::string_view text);

// Syncs a file's content, or the names in a folder, so that they survive a power loss. Errors name
// the path.
absl::Status sync_path(const std::string& path);

}  // namespace muster
