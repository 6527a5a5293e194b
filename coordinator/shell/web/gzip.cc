#include "coordinator/shell/web/gzip.h"

#include <zlib.h>

namespace muster::coordinator {
namespace {

constexpr int kGzip = 16;  // zlib's flag for gzip's header, which has no time

Bytef* bytes(std::string_view text) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
}

}  // namespace

std::string gzipped(std::string_view text, GzipLevel level) {
  const int zlib_level = level == GzipLevel::kFastest ? Z_BEST_SPEED : Z_BEST_COMPRESSION;
  z_stream stream{};
  if (deflateInit2(&stream, zlib_level, Z_DEFLATED, MAX_WBITS + kGzip, MAX_MEM_LEVEL,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    return "";
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = bytes(text);
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = bytes(out);
  stream.avail_out = static_cast<uInt>(out.size());
  const bool is_done = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  out.resize(is_done ? stream.total_out : 0);
  deflateEnd(&stream);
  return out;
}

std::string unzipped(std::string_view gzip) {
  std::string out;
  z_stream stream{};
  if (inflateInit2(&stream, MAX_WBITS + kGzip) != Z_OK) return out;
  stream.next_in = bytes(gzip);
  stream.avail_in = static_cast<uInt>(gzip.size());
  std::string part(size_t{64} << 10, '\0');
  int state = Z_OK;
  while (state == Z_OK) {
    stream.next_out = bytes(part);
    stream.avail_out = static_cast<uInt>(part.size());
    state = inflate(&stream, Z_NO_FLUSH);
    out.append(part, 0, part.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  return out;
}

}  // namespace muster::coordinator
