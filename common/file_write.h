// Writing files so that what is on the disk is never half of something. Any thread; nothing is kept.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include <absl/status/status.h>

namespace muster {

// What a file that write_file_atomically() has written outlives.
enum class Durability {
  kProcess,    // the end of this process: for what is written anew when the machine starts again
  kPowerLoss,  // the machine's: file and name are synced, which takes milliseconds
};

struct FileWriteOptions {
  Durability durability = Durability::kProcess;
  // The file's permission bits, whatever the umask says; none: 0666 less the umask.
  std::optional<mode_t> mode = std::nullopt;
};

// Writes `content` to `path` through a temporary file beside it and a rename, so that a reader, and whoever looks after
// a crash, finds the old content or the whole new one. After an error the old one is there, and no temporary file.
// The error names the path.
absl::Status write_file_atomically(const std::string& path, std::string_view content,
                                   const FileWriteOptions& options = {});

// Writes all of `bytes` at the descriptor's position, going on after partial writes and signals.
absl::Status write_all(int fd, std::string_view bytes);
// A program's result on standard output: as write_all(), but a reader that has seen enough (`| head`) is none to blame.
absl::Status write_result(std::string_view text);

// Makes the content of a file, or the names in a folder, outlive a power loss. The error names the path.
absl::Status sync_path(const std::string& path);

}  // namespace muster
