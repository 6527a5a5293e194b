#include "trainer_core/text/tfrecord_chunks.h"

#include <cstring>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/crc32c.h"

namespace muster::trainer {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kCrcBytes = 4;
constexpr size_t kHeaderBytes = kLengthBytes + kCrcBytes;

template <class T>
T number_at(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

}  // namespace

TfRecordChunks::TfRecordChunks(const InputFile& file, ByteWindow bytes, const Position& from)
    : file_(file), bytes_(std::move(bytes)), record_(from.record) {}

absl::StatusOr<bool> TfRecordChunks::next(Chunk& chunk) {
  const uint64_t begin = bytes_.offset();
  while (bytes_.offset() - begin < kChunkBytes) {
    const auto held = bytes_.peek(kHeaderBytes);
    if (!held.ok()) return held.status();
    if (held->empty()) break;
    if (held->size() < kHeaderBytes) return broken("the file ends inside its length");
    if (auto status = add_record(held->substr(0, kHeaderBytes), chunk); !status.ok()) return status;
  }
  chunk.end = {0, bytes_.offset(), record_};
  chunk.file_position = bytes_.file_position();
  return bytes_.offset() > begin;
}

absl::Status TfRecordChunks::add_record(std::string_view header, Chunk& chunk) {
  const auto length = number_at<uint64_t>(header, 0);
  if (number_at<uint32_t>(header, kLengthBytes) !=
      masked_crc32c(crc32c(header.substr(0, kLengthBytes)))) {
    return broken("the checksum of its length differs; the rest of the file cannot be read");
  }
  Record record{chunk.bytes.size(), 0, bytes_.offset(), record_};
  if (length > kDocumentBytesMax) {
    record.flaw = Flaw::kTooLong;
    if (auto status = skip(length); !status.ok()) return status;
  } else {
    const auto body_bytes = static_cast<size_t>(length) + kCrcBytes;
    const auto held = bytes_.peek(kHeaderBytes + body_bytes);
    if (!held.ok()) return held.status();
    if (held->size() < kHeaderBytes + body_bytes)
      return broken(absl::StrCat("the file ends before its ", length, " bytes do"));
    record.size = body_bytes;
    chunk.bytes += held->substr(kHeaderBytes, body_bytes);
    bytes_.use(kHeaderBytes + body_bytes);
  }
  chunk.records.push_back(record);
  ++record_;
  return absl::OkStatus();
}

absl::Status TfRecordChunks::skip(uint64_t length) {
  const absl::Status too_short =
      broken(absl::StrCat("the file ends before its ", length, " bytes do"));
  // Skipped separately: a hostile length must not wrap around in a sum.
  for (const uint64_t part : {uint64_t{kHeaderBytes}, length, uint64_t{kCrcBytes}}) {
    if (!bytes_.skip(part).ok()) return too_short;
  }
  return absl::OkStatus();
}

absl::Status TfRecordChunks::broken(const std::string& why) const {
  return absl::DataLossError(
      absl::StrCat(location_of(file_, {.offset = bytes_.offset(), .number = record_}), ": ", why));
}

absl::StatusOr<std::string_view> record_data(std::string_view record) {
  const std::string_view data = record.substr(0, record.size() - kCrcBytes);
  if (number_at<uint32_t>(record, data.size()) != masked_crc32c(crc32c(data)))
    return absl::DataLossError("the checksum of its data differs");
  return data;
}

}  // namespace muster::trainer
