#include "common/job/rendezvous_wire.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "common/random/philox.h"

namespace muster::rendezvous {
namespace {

using ::testing::HasSubstr;

template <size_t N>
std::array<char, N> header_of(const std::string& frame) {
  std::array<char, N> bytes{};
  std::copy_n(frame.begin(), N, bytes.begin());
  return bytes;
}

TEST(RendezvousWire, ARequestIsLaidOutAsDocumented) {
  const std::string frame = encode_request(Op::kGet, "1/2/key", "500");
  EXPECT_EQ(frame, std::string("MRV1\x02\x07\0\0\0\x03\0\0\0"
                               "1/2/key500",
                               kRequestHeaderBytes + 10));
  const auto header = decode_request_header(header_of<kRequestHeaderBytes>(frame));
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->op, Op::kGet);
  EXPECT_EQ(header->key_bytes, 7U);
  EXPECT_EQ(header->value_bytes, 3U);
}

TEST(RendezvousWire, AResponseIsLaidOutAsDocumented) {
  const std::string frame = encode_response(true, "ab");
  EXPECT_EQ(frame, std::string("MRV1\x01\x02\0\0\0ab", kResponseHeaderBytes + 2));
  const auto header = decode_response_header(header_of<kResponseHeaderBytes>(frame));
  ASSERT_TRUE(header.ok());
  EXPECT_TRUE(header->ok);
  EXPECT_EQ(header->value_bytes, 2U);
  EXPECT_FALSE(
      decode_response_header(header_of<kResponseHeaderBytes>(encode_response(false, "")))->ok);
}

TEST(RendezvousWire, RefusesOtherProtocolsUnknownOperationsAndSizesOverTheBound) {
  auto header = header_of<kRequestHeaderBytes>("GET / HTTP/1.1\r\n");
  EXPECT_THAT(std::string(decode_request_header(header).status().message()), HasSubstr("magic"));
  header = header_of<kRequestHeaderBytes>(encode_request(Op::kSet, "k", "v"));
  header[4] = 9;
  EXPECT_THAT(std::string(decode_request_header(header).status().message()),
              HasSubstr("operation 9"));
  header = header_of<kRequestHeaderBytes>(encode_request(Op::kSet, "k", "v"));
  header[8] = '\x7F';  // the key's size
  EXPECT_THAT(std::string(decode_request_header(header).status().message()),
              HasSubstr("at most 1024"));
  header = header_of<kRequestHeaderBytes>(encode_request(Op::kSet, "k", "v"));
  header[12] = '\xFF';  // the value's size
  EXPECT_FALSE(decode_request_header(header).ok());
  auto response = header_of<kResponseHeaderBytes>(encode_response(true, ""));
  response[8] = '\xFF';
  EXPECT_FALSE(decode_response_header(response).ok());
}

TEST(RendezvousWire, SizesAtTheBoundPass) {
  const std::string frame =
      encode_request(Op::kSet, std::string(kKeyBytesMax, 'k'), std::string(kValueBytesMax, 'v'));
  EXPECT_TRUE(decode_request_header(header_of<kRequestHeaderBytes>(frame)).ok());
}

TEST(RendezvousWire, RandomBytesNeverPassABound) {
  for (uint64_t i = 0; i < 20'000; ++i) {
    const Philox::Block block = Philox{1, 2}(i);
    std::array<char, kRequestHeaderBytes> bytes{};
    std::copy_n(reinterpret_cast<const char*>(block.data()), bytes.size(), bytes.begin());
    if (i % 2 == 0) std::copy_n("MRV1", 4, bytes.begin());
    const auto header = decode_request_header(bytes);
    if (!header.ok()) continue;
    ASSERT_LE(header->key_bytes, kKeyBytesMax);
    ASSERT_LE(header->value_bytes, kValueBytesMax);
  }
}

}  // namespace
}  // namespace muster::rendezvous
