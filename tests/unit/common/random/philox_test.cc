#include "common/random/philox.h"

#include <array>
#include <cmath>
#include <set>
#include <span>

#include <gtest/gtest.h>

namespace muster {
namespace {

// Known answers of philox4x32-10 in the Random123 distribution (kat_vectors). The counter's four
// words are those of the position and the stream, low word first.
TEST(Philox, MatchesTheRandom123KnownAnswers) {
  EXPECT_EQ((Philox{0, 0}(0)), (Philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ((Philox{~0ULL, ~0ULL}(~0ULL)),
            (Philox::Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0
  const Philox pi{0x299f31d0a4093822, 0x0370734413198a2e};
  EXPECT_EQ(pi(0x85a308d3243f6a88),
            (Philox::Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsUsableInConstantExpressions) {
  static_assert(Philox{0, 0}(0)[0] == 0x6627e8d5);
  static_assert(uniform_from_bits(0) > 0.0F);
}

TEST(Philox, KeyStreamAndPositionEachMatter) {
  std::set<Philox::Block> blocks;
  for (uint64_t key = 0; key < 8; ++key) {
    for (uint64_t stream = 0; stream < 8; ++stream) {
      for (uint64_t index = 0; index < 8; ++index) blocks.insert(Philox{key, stream}(index));
    }
  }
  EXPECT_EQ(blocks.size(), 512U);
}

TEST(Philox, UniformStaysInsideItsOpenInterval) {
  EXPECT_GT(uniform_from_bits(0), 0.0F);
  EXPECT_LT(uniform_from_bits(0xFFFFFFFF), 1.0F);
  EXPECT_TRUE(std::isfinite(std::log(uniform_from_bits(0))));
}

TEST(Philox, FillGivesTheWordsOfTheSamePositions) {
  const Philox generator{0x299f31d0a4093822, 0x0370734413198a2e};
  for (const uint64_t first : {uint64_t{0}, uint64_t{0xFFFFFFFD}, ~uint64_t{0} - 3}) {
    std::array<uint32_t, 64> words{};
    generator.fill(first, std::span(words));
    for (size_t i = 0; i < words.size(); ++i) {
      EXPECT_EQ(words[i], generator(first + i / 4)[i % 4]) << first << " + " << i;
    }
  }
}

}  // namespace
}  // namespace muster
