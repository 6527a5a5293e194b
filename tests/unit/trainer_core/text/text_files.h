// Makes contents of input files for tests: compressed bytes, TFRecords, tf.train.Examples.
#pragma once

#include <zstd.h>

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include "trainer_core/base/crc32c.h"

namespace muster::trainer {

inline std::string gzip(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Compresses with a checksum, as the program zstd does.
inline std::string zstd(std::string_view text) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const size_t bytes = ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size());
  ZSTD_freeCCtx(context);
  EXPECT_FALSE(ZSTD_isError(bytes));
  out.resize(bytes);
  return out;
}

inline std::string little_endian(uint64_t value, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

inline std::string tfrecord(std::string_view data) {
  const std::string length = little_endian(data.size(), 8);
  return length + little_endian(masked_crc32c(crc32c(length)), 4) + std::string(data) +
         little_endian(masked_crc32c(crc32c(data)), 4);
}

// Encodes a protobuf field of wire type 2.
inline std::string proto_bytes(int number, std::string_view value) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  size_t size = value.size();
  for (; size >= 0x80; size >>= 7) out += static_cast<char>(size | 0x80);
  out += static_cast<char>(size);
  return out + std::string(value);
}

// Encodes an entry of the map of a tf.train.Example. `lists` are the encoded lists of the Feature.
inline std::string proto_feature(std::string_view name, std::string_view lists) {
  return proto_bytes(1, proto_bytes(1, name) + proto_bytes(2, lists));
}

inline std::string example(std::string_view text) {
  return proto_bytes(1, proto_feature("content-length", proto_bytes(3, "\x0A\x01\x05")) +
                            proto_feature("text", proto_bytes(1, proto_bytes(1, text))) +
                            proto_feature("url", proto_bytes(1, proto_bytes(1, "https://a.b"))));
}

}  // namespace muster::trainer
