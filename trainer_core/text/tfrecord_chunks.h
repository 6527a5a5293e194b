// Reads TFRecord files, as TFDS writes C4 and the Pile. A record (little endian):
//
//    u64 length · u32 masked CRC-32C of these 8 bytes · u8[length] data
//    · u32 masked CRC-32C of the data
//
// The length's checksum is verified here: after a wrong length no further record can be found. The
// data's checksum is verified by record_data(): it concerns one record only, and can run on many
// threads.
#pragma once

#include "trainer_core/text/byte_window.h"
#include "trainer_core/text/chunk.h"

namespace muster::trainer {

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

// Returns the data of a record that is followed by its checksum, as stored in a chunk. DataLoss if
// they do not match.
absl::StatusOr<std::string_view> record_data(std::string_view record);

}  // namespace muster::trainer
