#include "trainer_core/text/parquet_chunks.h"

#include <parquet/column_reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "trainer_core/text/bounded_pool.h"
#include "trainer_core/text/document_text.h"

namespace muster::trainer {
namespace {

// Pages are read through a buffer, instead of a whole column chunk of some hundred MB at once.
constexpr int64_t kBufferBytes = 1 << 20;
// The maximum rows of a chunk, which bounds chunks of rows without text.
constexpr uint64_t kRowsPerChunk = 64 << 10;
// Arrow writes pages of 1 MiB, but checks their size only every 1024 values: documents of 1 MiB
// make pages of 1 GiB. Memory is allocated for the size in a page's header before the page is read.
constexpr int64_t kArrowBytesMax = int64_t{1} << 30;

// Reads rows with Arrow's low-level Parquet interface, which has been stable for years and throws
// exceptions.
class ParquetChunks : public ChunkReader {
 public:
  ParquetChunks(const InputFile& file, const std::string& field, uint64_t row)
      : file_(file), row_(row) {
    parquet::ReaderProperties properties(&pool_);
    properties.enable_buffered_stream();
    properties.set_buffer_size(kBufferBytes);
    properties.set_page_checksum_verification(true);
    reader_ = parquet::ParquetFileReader::OpenFile(file.path, /*memory_map=*/false, properties);
    rows_ = static_cast<uint64_t>(std::max<int64_t>(reader_->metadata()->num_rows(), 0));
    find_column(field);
  }

  // Empty if the column can be read.
  const std::string& problem() const { return problem_; }

  absl::StatusOr<bool> next(Chunk& chunk) override {
    try {
      return read(chunk);
    } catch (const std::exception& e) {
      return absl::DataLossError(absl::StrCat(file_.path, " is damaged near row ", row_ + 1,
                                              place_of_group(), ": ", e.what()));
    }
  }

 private:
  void find_column(const std::string& field) {
    const parquet::SchemaDescriptor& schema = *reader_->metadata()->schema();
    column_ = schema.ColumnIndex(field);
    if (column_ < 0) {
      std::vector<std::string> names;
      const int count = std::min(schema.num_columns(), static_cast<int>(kNamesShown));
      for (int i = 0; i < count; ++i) names.push_back(schema.Column(i)->path()->ToDotString());
      problem_ = absl::StrCat("has no column \"", field, "\"; it has \"",
                              absl::StrJoin(names, "\", \""), "\"");
      return;
    }
    const parquet::ColumnDescriptor& column = *schema.Column(column_);
    if (column.physical_type() != parquet::Type::BYTE_ARRAY || column.max_repetition_level() > 0)
      problem_ = absl::StrCat("column \"", field, "\" holds no text");
  }

  bool read(Chunk& chunk) {
    const uint64_t begin = row_;
    while (row_ < rows_ && chunk.bytes.size() < kChunkBytes && row_ - begin < kRowsPerChunk) {
      if (row_ >= group_end_) open_group();
      read_row(chunk);
    }
    chunk.end = {0, 0, row_};
    const double share = rows_ == 0 ? 1 : static_cast<double>(row_) / static_cast<double>(rows_);
    chunk.file_position = static_cast<uint64_t>(share * static_cast<double>(file_.bytes));
    return row_ > begin;
  }

  // Opens the row group that contains row_, and skips to that row. Requires that row_ is after all
  // groups that were opened before.
  void open_group() {
    const parquet::FileMetaData& metadata = *reader_->metadata();
    uint64_t begin = group_end_;
    while (row_ >= group_end_) {
      if (++group_ >= metadata.num_row_groups())
        throw std::runtime_error("its row groups have fewer rows than it states");
      begin = group_end_;
      pages_at_ = -1;
      const int64_t rows = metadata.RowGroup(group_)->num_rows();
      if (rows < 0 || static_cast<uint64_t>(rows) > rows_ - begin)
        throw std::runtime_error(
            absl::StrCat("a row group of ", rows, " rows, with ", rows_ - begin, " rows left"));
      group_end_ += static_cast<uint64_t>(rows);
    }
    pages_at_ = metadata.RowGroup(group_)->ColumnChunk(column_)->data_page_offset();
    text_ = std::static_pointer_cast<parquet::ByteArrayReader>(
        reader_->RowGroup(group_)->Column(column_));
    const auto passed = static_cast<int64_t>(row_ - begin);
    if (text_->Skip(passed) != passed) throw std::runtime_error("a row group ends too early");
  }

  // Describes the place of an error for the user; empty before the first row group.
  std::string place_of_group() const {
    if (group_ < 0) return "";
    const std::string group = absl::StrCat(" (row group ", group_);
    if (pages_at_ < 0) return group + ")";
    return absl::StrCat(group, ", whose column has its pages from byte ", pages_at_, ")");
  }

  // Reads one row at a time: Arrow cannot take back decoded rows that do not fit into the chunk,
  // and the page is in memory anyway.
  void read_row(Chunk& chunk) {
    int64_t values = 0;
    int16_t level = 0;
    parquet::ByteArray text;
    if (text_->ReadBatch(1, &level, nullptr, &text, &values) != 1)
      throw std::runtime_error("a column ends before its rows do");
    Record record{chunk.bytes.size(), 0, 0, row_++};
    if (values == 0) {
      record.flaw = Flaw::kNull;
    } else if (text.len > kDocumentBytesMax) {
      record.flaw = Flaw::kTooLong;
    } else {
      record.size = text.len;
      chunk.bytes.append(reinterpret_cast<const char*>(text.ptr), text.len);
    }
    chunk.records.push_back(record);
  }

  const InputFile& file_;
  uint64_t row_;
  uint64_t rows_ = 0;
  int column_ = -1;
  std::string problem_;
  BoundedPool pool_{kArrowBytesMax};  // outlives its users below
  std::unique_ptr<parquet::ParquetFileReader> reader_;
  int group_ = -1;
  int64_t pages_at_ = -1;   // byte offset in the file; -1: unknown
  uint64_t group_end_ = 0;  // the first row after the group
  std::shared_ptr<parquet::ByteArrayReader> text_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChunkReader>> open_parquet_chunks(const InputFile& file,
                                                                 const std::string& field,
                                                                 const Position& from) {
  try {
    auto chunks = std::make_unique<ParquetChunks>(file, field, from.record);
    if (!chunks->problem().empty())
      return absl::InvalidArgumentError(absl::StrCat(file.path, " ", chunks->problem()));
    return chunks;
  } catch (const std::exception& e) {
    return absl::DataLossError(absl::StrCat(file.path, " cannot be read as Parquet: ", e.what()));
  }
}

}  // namespace muster::trainer
