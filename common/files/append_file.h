// A file that grows by records, for instance lines. A reader never finds half a record between two
// whole ones, even if a writer was killed or the disk was full.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace muster {

// An open file. Used by one thread at a time; other processes should not append to the file.
class AppendFile {
 public:
  // Opens the file, or creates it (but not its folder). It may also be a pipe or a device. Errors
  // name the path.
  static absl::StatusOr<std::unique_ptr<AppendFile>> open(const std::string& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Appends the record, if possible with a single write(). If only a part of it can be written,
  // removes that part and returns the error.
  absl::Status append(std::string_view record);

  // Ends the last line of a file of lines whose writer was killed. If `is_whole` accepts the text
  // after the last newline, the next append() begins with a newline; if not, removes that text. Has
  // no effect on pipes and devices.
  absl::Status end_last_line(absl::FunctionRef<bool(std::string_view line)> is_whole);

 private:
  AppendFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
  bool needs_newline_ = false;  // before the next record
};

}  // namespace muster
