// Names compressions and archives that are not decoded.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/status.h>

namespace muster::trainer {

// Returns InvalidArgument with the path and the format if the file's first bytes are those of
// bzip2, xz, lz4, … or of a tar archive. `begins`: at least 512 bytes, or the whole file.
absl::Status check_decodable(const std::string& path, std::string_view begins);

}  // namespace muster::trainer
