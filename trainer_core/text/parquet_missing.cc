// The implementation of parquet_chunks.h in a build without Arrow.
#include <absl/strings/str_cat.h>

#include "trainer_core/text/parquet_chunks.h"

namespace muster::trainer {

absl::StatusOr<std::unique_ptr<ChunkReader>> open_parquet_chunks(const InputFile& file,
                                                                 const std::string& /*field*/,
                                                                 const Position& /*from*/) {
  return absl::FailedPreconditionError(absl::StrCat(
      file.path,
      " is Parquet, and this muster was built without Arrow C++: install libarrow-dev and "
      "libparquet-dev (https://arrow.apache.org/install has packages for Debian and Ubuntu), or "
      "`pip install pyarrow` and set MUSTER_ARROW_ROOT to its folder (docs/data.md), and build "
      "again; or convert the file to JSON lines"));
}

}  // namespace muster::trainer
