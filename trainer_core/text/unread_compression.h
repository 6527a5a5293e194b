// Names compressions and archives that are not decoded.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/status.h>

namespace muster::trainer {

// Returns the name of the compression or archive whose magic is at the start of `begins`: "bzip2",
// "lz4", "zlib", …; "" for another one.
std::string_view unread_compression(std::string_view begins);

// Returns InvalidArgument with the path and the format if the file's first bytes are those of
// bzip2, xz, lz4, … or of a tar archive. `begins`: at least 512 bytes, or the whole file.
absl::Status check_decodable(const std::string& path, std::string_view begins);

}  // namespace muster::trainer
