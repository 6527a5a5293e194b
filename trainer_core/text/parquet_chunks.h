// Reads one column of a Parquet file through Arrow C++, if the build has it.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/text/chunk.h"

namespace muster::trainer {

// `from.record` is the first row to read. Errors: FailedPrecondition, with the packages to install,
// if the build has no Arrow; InvalidArgument for a column that does not exist or holds no text;
// DataLoss for a damaged file.
absl::StatusOr<std::unique_ptr<ChunkReader>> open_parquet_chunks(const InputFile& file,
                                                                 const std::string& field,
                                                                 const Position& from);

}  // namespace muster::trainer
