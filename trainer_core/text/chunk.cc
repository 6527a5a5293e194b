#include "trainer_core/text/chunk.h"

#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/text/byte_window.h"
#include "trainer_core/text/line_chunks.h"
#include "trainer_core/text/parquet_chunks.h"
#include "trainer_core/text/tfrecord_chunks.h"

namespace muster::trainer {

absl::StatusOr<std::unique_ptr<ChunkReader>> ChunkReader::open(const InputFile& file,
                                                               const ReadOptions& options,
                                                               const Position& from) {
  if (file.format == InputFormat::kParquet) return open_parquet_chunks(file, options.field, from);
  auto source = ByteSource::open(file.path);
  if (!source.ok()) return source.status();
  if (auto status = (*source)->skip(from.offset); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(file.path, ": ", status.message()));
  }
  ByteWindow window(std::move(*source), from.offset);
  if (file.format == InputFormat::kTfRecord)
    return std::make_unique<TfRecordChunks>(file, std::move(window), from);
  if (auto status = pass_beginning(file, window); !status.ok()) return status;
  return std::make_unique<LineChunks>(file, options.documents, std::move(window), from);
}

absl::StatusOr<bool> ChunkStream::next(Chunk& chunk) {
  for (; at_.file < files_.size(); at_ = {at_.file + 1}) {
    if (reader_ == nullptr) {
      auto reader = ChunkReader::open(files_[at_.file], options_, at_);
      if (!reader.ok()) return reader.status();
      reader_ = std::move(*reader);
    }
    const auto more = reader_->next(chunk);
    if (!more.ok()) return more.status();
    if (*more) {
      chunk.file = chunk.end.file = at_.file;
      chunk.is_first = at_.offset == 0 && at_.record == 0;
      chunk.bytes.append(Chunk::kPaddingBytes, '\0');
      at_ = chunk.end;
      return true;
    }
    reader_.reset();
  }
  return false;
}

std::string location_of(const InputFile& file, const Record& record) {
  switch (file.format) {
    case InputFormat::kText:
    case InputFormat::kJsonLines:
      return absl::StrCat(file.path, ":", record.number + 1, " (byte ", record.offset, ")");
    case InputFormat::kTfRecord:
      return absl::StrCat(file.path, ", record ", record.number + 1, " (byte ", record.offset, ")");
    case InputFormat::kParquet:
      break;
  }
  return absl::StrCat(file.path, ", row ", record.number + 1);
}

}  // namespace muster::trainer
