// Event files for TensorBoard: the subset of `tf.summary`'s format that holds scalars.
//
//   events.out.tfevents.<Unix seconds>.<host>.<pid>.0, a TFRecord file:
//     u64 length · u32 masked CRC-32C of these 8 bytes · u8[length] Event
//     · u32 masked CRC-32C of the Event
//
//   message Event { double wall_time = 1; int64 step = 2; string file_version = 3;
//                   Summary summary = 5; SessionLog session_log = 7; }
//   message Summary { message Value { string tag = 1; float simple_value = 2; }
//                     repeated Value value = 1; }
//   message SessionLog { enum { START = 1 } status = 1; }
//
// (tensorboard/compat/proto/event.proto, summary.proto.) A run that resumes from a checkpoint
// writes another file into the same folder. The file begins with a SessionLog, at which TensorBoard
// drops the steps of the earlier attempt from that step on.
#pragma once

#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

using Scalars = std::vector<std::pair<std::string, double>>;

// Returns one record of a TFRecord file.
std::string tfrecord_frame(std::string_view data);

// Not thread-safe: called on one thread only.
class EventFile {
 public:
  // Creates the folder if it does not exist. The error names the file.
  static absl::StatusOr<std::unique_ptr<EventFile>> open(const std::string& folder,
                                                         int64_t unix_ns);

  // Writes and flushes, so that a reader sees whole records. A write that fails (disk full) loses
  // the record; training continues.
  void write(int64_t step, int64_t unix_ns, const Scalars& scalars);

 private:
  explicit EventFile(std::ofstream file) : file_(std::move(file)) {}

  std::ofstream file_;
  bool begun_ = false;  // whether the session's start is written
};

}  // namespace muster::trainer
