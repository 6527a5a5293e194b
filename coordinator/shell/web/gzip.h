// Compression of the page's files and of its API's answers, by zlib.
#pragma once

#include <string>
#include <string_view>

namespace muster::coordinator {

enum class GzipLevel { kFastest, kSmallest };

// Returns the text compressed by gzip; empty if that fails. Equal texts give equal bytes.
std::string gzipped(std::string_view text, GzipLevel level);

// Returns the text of compressed bytes; a part of it if they are damaged.
std::string unzipped(std::string_view gzip);

}  // namespace muster::coordinator
