// Reads a column of a Parquet file through Arrow C++. Arrow is an optional dependency of the build.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/text/chunk.h"

namespace muster::trainer {

// Opens a file; `field` is the name of the column, and `from.record` the first row to read. Returns
// FailedPrecondition, with the packages to install, if the build has no Arrow; InvalidArgument if
// the column does not exist or does not contain text; DataLoss if the file is damaged.
absl::StatusOr<std::unique_ptr<ChunkReader>> open_parquet_chunks(const InputFile& file,
                                                                 const std::string& field,
                                                                 const Position& from);

}  // namespace muster::trainer
