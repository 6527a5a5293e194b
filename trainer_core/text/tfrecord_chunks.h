// Reads TFRecord files, the format in which TFDS stores C4 and the Pile. The layout of a record
// (little endian):
//
//    u64 length · u32 masked CRC-32C of these 8 bytes · u8[length] data
//    · u32 masked CRC-32C of the data
//
// This reader verifies the checksum of the length, because a wrong length makes all later records
// unreadable. record_data() verifies the checksum of the data, because a wrong one concerns a
// single record, and the check can run on many threads.
#pragma once

#include "trainer_core/text/byte_window.h"
#include "trainer_core/text/chunk.h"

namespace muster::trainer {

// Reads the chunks of a TFRecord file.
class TfRecordChunks : public ChunkReader {
 public:
  TfRecordChunks(const InputFile& file, ByteWindow bytes, const Position& from);

  absl::StatusOr<bool> next(Chunk& chunk) override;

 private:
  absl::Status add_record(std::string_view header, Chunk& chunk);
  absl::Status skip(uint64_t length);
  absl::Status broken(const std::string& why) const;

  const InputFile& file_;
  ByteWindow bytes_;
  uint64_t record_;
};

// Returns the data of a record. `record` is the data followed by its checksum, as it is stored in a
// chunk. Returns DataLoss if the checksum differs.
absl::StatusOr<std::string_view> record_data(std::string_view record);

}  // namespace muster::trainer
