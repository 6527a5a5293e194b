// Event files for TensorBoard: the subset of the format of `tf.summary` that stores scalars.
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
// The source is tensorboard/compat/proto/event.proto and summary.proto. A run that resumes from a
// checkpoint writes another file to the same folder. A file begins with a SessionLog, which makes
// TensorBoard discard the steps of earlier files from the step of the SessionLog on.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/files/append_file.h"

namespace muster::trainer {

// Names and values of scalars.
using Scalars = std::vector<std::pair<std::string, double>>;

// Returns a record of a TFRecord file with this data.
std::string tfrecord_frame(std::string_view data);

// An open event file. Called on one thread only.
class EventFile {
 public:
  // Creates a file, and the folder if needed. An error contains the path.
  static absl::StatusOr<std::unique_ptr<EventFile>> open(const std::string& folder,
                                                         int64_t unix_ns);

  // Writes a whole record at once, so that readers see complete records. If the write fails, for
  // instance because the disk is full, the record is lost and training continues.
  void write(int64_t step, int64_t unix_ns, const Scalars& scalars);

 private:
  EventFile(std::unique_ptr<AppendFile> file, std::string header)
      : file_(std::move(file)), header_(std::move(header)) {}

  std::unique_ptr<AppendFile> file_;
  std::string header_;  // the version, until it is written with the first record
};

}  // namespace muster::trainer
