#include "trainer_core/report/event_file.h"

#include <unistd.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "common/process/host_name.h"
#include "trainer_core/base/crc32c.h"

namespace muster::trainer {
namespace {

constexpr int64_t kSessionStart = 1;
// The maximum bytes of the host's name in the file's name.
constexpr size_t kHostBytesMax = 64;

template <class T>
std::string little_endian_bytes(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

// The functions below encode the field types of an Event in protobuf's wire format.
void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
void append_integer(std::string& out, int field, int64_t value) {
  append_varint(out, static_cast<uint64_t>(field) << 3);
  append_varint(out, static_cast<uint64_t>(value));
}
void append_double(std::string& out, int field, double value) {
  append_varint(out, static_cast<uint64_t>(field) << 3 | 1);
  out += little_endian_bytes(std::bit_cast<uint64_t>(value));
}
void append_float(std::string& out, int field, float value) {
  append_varint(out, static_cast<uint64_t>(field) << 3 | 5);
  out += little_endian_bytes(std::bit_cast<uint32_t>(value));
}
void append_bytes(std::string& out, int field, std::string_view value) {
  append_varint(out, static_cast<uint64_t>(field) << 3 | 2);
  append_varint(out, value.size());
  out += value;
}

std::string event_at(int64_t step, int64_t unix_ns) {
  std::string event;
  append_double(event, 1, static_cast<double>(unix_ns) / 1e9);
  if (step != 0) append_integer(event, 2, step);
  return event;
}

}  // namespace

std::string tfrecord_frame(std::string_view data) {
  const std::string length = little_endian_bytes(static_cast<uint64_t>(data.size()));
  std::string frame = length;
  frame += little_endian_bytes(masked_crc32c(crc32c(length)));
  frame += data;
  frame += little_endian_bytes(masked_crc32c(crc32c(data)));
  return frame;
}

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::open(const std::string& folder,
                                                           int64_t unix_ns) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path =
      absl::StrCat(folder, "/events.out.tfevents.", unix_ns / 1'000'000'000, ".",
                   host_name().substr(0, kHostBytesMax), ".", getpid(), ".0");
  std::string version = event_at(0, unix_ns);
  append_bytes(version, 3, "brain.Event:2");
  auto file = AppendFile::open(path);
  if (!file.ok()) {
    return absl::Status(file.status().code(),
                        absl::StrCat("enable_tensorboard: ", file.status().message()));
  }
  return absl::WrapUnique(new EventFile(*std::move(file), tfrecord_frame(version)));
}

void EventFile::write(int64_t step, int64_t unix_ns, const Scalars& scalars) {
  std::string start;
  if (!header_.empty()) {
    std::string status;
    append_integer(status, 1, kSessionStart);
    start = event_at(step, unix_ns);
    append_bytes(start, 7, status);
    start = header_ + tfrecord_frame(start);
  }
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    append_bytes(value, 1, tag);
    append_float(value, 2, static_cast<float>(number));
    append_bytes(summary, 1, value);
  }
  std::string event = event_at(step, unix_ns);
  append_bytes(event, 5, summary);
  if (file_->append(start + tfrecord_frame(event)).ok()) header_.clear();
}

}  // namespace muster::trainer
