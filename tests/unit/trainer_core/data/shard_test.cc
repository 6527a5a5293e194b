#include "trainer_core/data/shard.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/unit/mutate.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

std::vector<int32_t> ramp(size_t count, int32_t modulus) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(i) % modulus;
  return tokens;
}

// Returns the bytes followed by the checksums of their blocks.
std::string with_sums(std::string shard) {
  const auto header = decode_shard_header({shard.data(), kShardHeaderBytes}, shard.size());
  EXPECT_TRUE(header.ok()) << header.status();
  for (uint64_t block = 0; block < header->blocks(); ++block) {
    const uint64_t begin = std::max<uint64_t>(block * kShardBlockBytes, kShardHeaderBytes);
    const uint64_t end = std::min((block + 1) * kShardBlockBytes, header->payload_end());
    const uint64_t sum = XXH3_64bits(shard.data() + begin, end - begin);
    std::memcpy(shard.data() + header->payload_end() + block * sizeof(sum), &sum, sizeof(sum));
  }
  return shard;
}

// Returns a shard in version 2's format.
std::string without_sums(std::string shard) {
  auto header = decode_shard_header({shard.data(), kShardHeaderBytes}, shard.size());
  EXPECT_TRUE(header.ok()) << header.status();
  shard.resize(header->payload_end());
  header->block_bytes = 0;
  const auto bytes = encode_shard_header(*header);
  std::memcpy(shard.data(), bytes.data(), bytes.size());
  return shard;
}

// Three documents: half of the tokens, one token, the rest.
void make_shard(const std::string& path, uint32_t vocab_size, const std::vector<int32_t>& tokens) {
  const auto half = static_cast<uint32_t>(tokens.size() / 2);
  auto writer = ShardWriter::create(path, vocab_size, 0xFEED);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->append(std::span(tokens).first(half), {{half}}).ok());
  const auto rest = static_cast<uint32_t>(tokens.size()) - half - 1;
  ASSERT_TRUE((*writer)->append(std::span(tokens).subspan(half), {{1, rest}}).ok());
  auto header = (*writer)->finish();
  ASSERT_TRUE(header.ok()) << header.status();
}

class ShardRoundTrip : public testing::TestWithParam<uint32_t> {};

TEST_P(ShardRoundTrip, ReadsTheWrittenTokens) {
  TempFolder folder;
  const auto tokens = ramp(1000, static_cast<int32_t>(GetParam()));
  make_shard(folder.file("a.mtok"), GetParam(), tokens);
  auto shard = ShardReader::open(folder.file("a.mtok"));
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_EQ((*shard)->header().token_count, 1000U);
  EXPECT_EQ((*shard)->header().document_count, 3U);
  EXPECT_EQ((*shard)->header().tokenizer_fingerprint, 0xFEEDU);
  EXPECT_EQ((*shard)->header().token_bytes, GetParam() <= 65536 ? 2U : 4U);
  EXPECT_TRUE((*shard)->verify_payload().ok());
  std::vector<int32_t> out(10);
  ASSERT_TRUE((*shard)->read(123, out).ok());
  EXPECT_EQ(out, std::vector<int32_t>(tokens.begin() + 123, tokens.begin() + 133));
  std::vector<uint64_t> ends(3);
  ASSERT_TRUE((*shard)->document_ends(0, ends).ok());
  EXPECT_EQ(ends, (std::vector<uint64_t>{500, 501, 1000}));
  ASSERT_TRUE((*shard)->document_ends(1, std::span(ends).first(2)).ok());
  EXPECT_EQ(ends, (std::vector<uint64_t>{501, 1000, 1000}));
}
INSTANTIATE_TEST_SUITE_P(Widths, ShardRoundTrip,
                         testing::Values(1U, 300U, 65536U, 65537U, 200000U));

TEST(Shard, EveryFlippedHeaderBitIsFound) {
  TempFolder folder;
  make_shard(folder.file("a.mtok"), 300, ramp(100, 300));
  const std::string good = read_file(folder.file("a.mtok"));
  for (size_t i = 0; i < kShardHeaderBytes; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      write_file(folder.file("bad.mtok"), bad);
      auto shard = ShardReader::open(folder.file("bad.mtok"));
      ASSERT_FALSE(shard.ok()) << "byte " << i << " bit " << bit;
      EXPECT_EQ(shard.status().code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(shard.status().message()), HasSubstr("bad.mtok"));
      EXPECT_THAT(std::string(shard.status().message()), HasSubstr("offset"));
    }
  }
}

TEST(Shard, EveryTruncationIsFoundAndNamesTheOffset) {
  TempFolder folder;
  make_shard(folder.file("a.mtok"), 300, ramp(100, 300));
  const std::string good = read_file(folder.file("a.mtok"));
  for (size_t length = 0; length < good.size(); ++length) {
    write_file(folder.file("short.mtok"), good.substr(0, length));
    auto shard = ShardReader::open(folder.file("short.mtok"));
    ASSERT_FALSE(shard.ok()) << length;
    const std::string message(shard.status().message());
    EXPECT_THAT(message, HasSubstr("short.mtok truncated"));
    EXPECT_THAT(message, HasSubstr("offset " + std::to_string(length)));
  }
  write_file(folder.file("pointer.mtok"),
             "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, '1') +
                 "\nsize 3\n");
  EXPECT_THAT(std::string(ShardReader::open(folder.file("pointer.mtok")).status().message()),
              HasSubstr("this is a Git LFS pointer: run git lfs pull"));
  write_file(folder.file("long.mtok"), good + "x");
  EXPECT_EQ(ShardReader::open(folder.file("long.mtok")).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(Shard, AHostileCountThatWrapsAroundIsRefused) {
  ShardHeader header{.token_bytes = 2, .vocab_size = 300, .token_count = uint64_t{1} << 63};
  const auto bytes = encode_shard_header(header);
  auto decoded = decode_shard_header(bytes, kShardHeaderBytes);
  ASSERT_FALSE(decoded.ok());
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("truncated"));
  header = {.token_bytes = 2, .vocab_size = 300, .document_count = uint64_t{1} << 61};
  decoded = decode_shard_header(encode_shard_header(header), kShardHeaderBytes);
  ASSERT_FALSE(decoded.ok());
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("documents, but the file ends"));
}

// The checksum matches: the ends themselves are checked.
TEST(Shard, DocumentsOutOfOrderAreRefused) {
  TempFolder folder;
  make_shard(folder.file("a.mtok"), 300, ramp(101, 300));
  const std::string good = read_file(folder.file("a.mtok"));
  const size_t table = kShardHeaderBytes + 208;  // 202 bytes of tokens and 6 zeros
  ASSERT_EQ(good.size(), table + 24 + 8);
  struct Case {
    std::vector<uint64_t> ends;
    std::string expected;
  };
  for (const Case& test :
       {Case{{50, 50, 101}, "offset 280: document 1 ends at token 50"},
        Case{{0, 51, 101}, "offset 272: document 0 ends at token 0"},
        Case{{50, ~uint64_t{0}, 101}, "document 1 ends at token 18446744073709551615"},
        Case{{50, 51, 100}, "end at token 100 of 101"}}) {
    std::string bad = good;
    std::memcpy(bad.data() + table, test.ends.data(), 24);
    auto header = decode_shard_header({bad.data(), kShardHeaderBytes}, bad.size());
    ASSERT_TRUE(header.ok());
    header->documents_crc32 =
        static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bad.data() + table), 24));
    const auto bytes = encode_shard_header(*header);
    std::memcpy(bad.data(), bytes.data(), bytes.size());
    write_file(folder.file("bad.mtok"), with_sums(bad));
    const auto shard = ShardReader::open(folder.file("bad.mtok"));
    ASSERT_TRUE(shard.ok()) << shard.status();
    const absl::Status status = (*shard)->verify_payload();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.expected));
  }
  std::string flipped = good;
  flipped[table + 8] = static_cast<char>(flipped[table + 8] ^ 1);
  write_file(folder.file("bad.mtok"), with_sums(flipped));
  EXPECT_THAT(
      std::string((*ShardReader::open(folder.file("bad.mtok")))->verify_payload().message()),
      HasSubstr("checksum of its documents"));
}

TEST(Shard, DamagedTokensAreFoundByTheChecksumAndTheIdCheck) {
  TempFolder folder;
  make_shard(folder.file("a.mtok"), 300, ramp(100, 300));
  std::string bad = read_file(folder.file("a.mtok"));
  bad[kShardHeaderBytes + 21] = '\x7F';
  write_file(folder.file("a.mtok"), with_sums(bad));
  auto shard = ShardReader::open(folder.file("a.mtok"));
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_THAT(std::string((*shard)->verify_payload().message()),
              HasSubstr("checksum of its tokens"));
  std::vector<int32_t> out(100);
  const absl::Status status = (*shard)->read(0, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("offset 84"));
}

// Each block is the first to be read.
TEST(Shard, ADamagedBlockIsDetectedAtItsFirstRead) {
  // Tokens of 2 bytes: they extend into block 3, which also contains the ends of documents.
  constexpr size_t kTokens = 100'000;
  TempFolder folder;
  const auto tokens = ramp(kTokens, 300);
  make_shard(folder.file("a.mtok"), 300, tokens);
  const std::string good = read_file(folder.file("a.mtok"));
  const auto header = decode_shard_header({good.data(), kShardHeaderBytes}, good.size());
  ASSERT_TRUE(header.ok());
  ASSERT_EQ(header->blocks(), 4U);
  const std::string path = folder.file("bad.mtok");
  const auto damaged_at = [&](size_t offset) {
    std::string bad = good;
    bad[offset] = static_cast<char>(bad[offset] ^ 1);
    write_file(path, bad);
    auto shard = ShardReader::open(path);
    EXPECT_TRUE(shard.ok()) << shard.status();
    return *std::move(shard);
  };
  const size_t tokens_a_block = kShardBlockBytes / 2;
  std::vector<int32_t> out(2);
  {
    const auto shard = damaged_at(kShardBlockBytes);                // the first byte of block 1
    const uint64_t first = tokens_a_block - kShardHeaderBytes / 2;  // the block's first token
    EXPECT_TRUE(shard->read(first - 2, out).ok());
    const absl::Status status = shard->read(first - 1, out);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(path + " is damaged: the checksum of its bytes 65536 to 131071 differs"));
    EXPECT_FALSE(shard->read(first + 100, out).ok()) << "found once, it is not forgotten";
    EXPECT_TRUE(shard->read(first + tokens_a_block, out).ok());
    EXPECT_THAT(std::string(shard->verify_payload().message()), HasSubstr("bytes 65536 to"));
  }
  std::vector<uint64_t> ends(1);
  {
    const auto shard = damaged_at(header->documents_offset() + 8);
    EXPECT_TRUE(shard->read(0, out).ok());
    EXPECT_THAT(std::string(shard->document_ends(2, ends).message()),
                HasSubstr("bytes 196608 to " + std::to_string(header->payload_end() - 1)));
  }
  {
    const auto shard = damaged_at(header->payload_end() + 8);  // a checksum itself
    EXPECT_TRUE(shard->read(0, out).ok());
    EXPECT_THAT(std::string(shard->read(tokens_a_block, out).message()),
                HasSubstr("bytes 65536 to"));
    EXPECT_TRUE(shard->document_ends(0, ends).ok());
  }
}

TEST(Shard, AShardWithoutBlockChecksumsIsRead) {
  TempFolder folder;
  const auto tokens = ramp(50'000, 300);
  make_shard(folder.file("new.mtok"), 300, tokens);
  write_file(folder.file("old.mtok"), without_sums(read_file(folder.file("new.mtok"))));
  const auto shard = ShardReader::open(folder.file("old.mtok"));
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_TRUE((*shard)->verify_payload().ok());
  std::vector<int32_t> out(tokens.size());
  ASSERT_TRUE((*shard)->read(0, out).ok());
  EXPECT_EQ(out, tokens);
}

// Appends are split in many ways, at every remainder of a block.
TEST(Shard, BlockChecksumsDoNotDependOnTheAppends) {
  TempFolder folder;
  for (const size_t count : {size_t{1}, size_t{32'736 - 4}, size_t{32'736}, size_t{70'001}}) {
    const auto tokens = ramp(count, 300);
    auto writer = ShardWriter::create(folder.file("a.mtok"), 300, 7);
    ASSERT_TRUE(writer.ok());
    for (size_t at = 0; at < count;) {
      const size_t part = std::min<size_t>(count - at, 1 + at * 7 % 20'011);
      ASSERT_TRUE((*writer)
                      ->append(std::span(tokens).subspan(at, part), {{static_cast<uint32_t>(part)}})
                      .ok());
      at += part;
    }
    ASSERT_TRUE((*writer)->finish().ok());
    const std::string shard = read_file(folder.file("a.mtok"));
    EXPECT_EQ(with_sums(shard), shard) << count;
    EXPECT_TRUE((*ShardReader::open(folder.file("a.mtok")))->verify_payload().ok());
  }
}

// Fills the process's table of mappings; skipped under a sanitizer, which needs the table itself.
TEST(Shard, ExceedingTheMappingLimitIsAnErrorThatNamesIt) {
  if (kSanitized) GTEST_SKIP() << "under a sanitizer";
  std::ifstream limit("/proc/sys/vm/max_map_count");
  uint64_t most = 0;
  if (!(limit >> most) || most > 1'000'000) GTEST_SKIP() << "no limit that is reached soon";
  TempFolder folder;
  make_shard(folder.file("a.mtok"), 300, ramp(100, 300));
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = 2 * most * page;
  void* const memory =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  // Alternating page protections make each page a mapping of its own.
  size_t split = 0;
  while (mprotect(static_cast<char*>(memory) + (2 * split + 1) * page, page, PROT_READ) == 0)
    ++split;
  // Uses up the last few; none is merged with another.
  std::vector<void*> rest;
  rest.reserve(16);
  do {
    rest.push_back(mmap(nullptr, page, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  } while (rest.back() != MAP_FAILED && rest.size() < rest.capacity());
  const auto shard = ShardReader::open(folder.file("a.mtok"));
  munmap(memory, bytes);
  for (void* const mapping : rest) {
    if (mapping != MAP_FAILED) munmap(mapping, page);
  }
  EXPECT_EQ(shard.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(shard.status().message()),
      HasSubstr("a process may have " + std::to_string(most) + " of them (vm.max_map_count)"));
  EXPECT_TRUE(ShardReader::open(folder.file("a.mtok")).ok());
}

TEST(Shard, AnUnfinishedWriterLeavesNoFile) {
  TempFolder folder;
  {
    auto writer = ShardWriter::create(folder.file("a.mtok"), 300, 0);
    ASSERT_TRUE(writer.ok());
    EXPECT_FALSE((*writer)->append(std::vector<int32_t>{300}, {{1}}).ok());
    EXPECT_FALSE((*writer)->append(std::vector<int32_t>{-1}, {{1}}).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Shard, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  TempFolder folder;
  std::filesystem::create_symlink("/dev/full", folder.file("a.mtok.tmp"));
  auto writer = ShardWriter::create(folder.file("a.mtok"), 300, 0);
  ASSERT_TRUE(writer.ok()) << writer.status();
  absl::Status status = (*writer)->append(ramp(100, 300), {{100}});
  if (status.ok()) status = (*writer)->finish().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_FALSE(std::filesystem::exists(folder.file("a.mtok")));
}

// The checksums match: only the fields and the tokens are wrong.
TEST(Shard, MutationsAreRefusedOrReadWithinTheVocabulary) {
  TempFolder folder;
  make_shard(folder.file("a.mtok"), 300, ramp(100, 300));
  const std::string good = read_file(folder.file("a.mtok"));
  Mutator mutator(4);
  int opened = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bad = mutator.mutate(good);
    if (bad.size() >= kShardHeaderBytes) {
      const auto crc = static_cast<uint32_t>(
          crc32_z(0, reinterpret_cast<const Bytef*>(bad.data()), kShardHeaderBytes - 4));
      std::memcpy(bad.data() + kShardHeaderBytes - 4, &crc, sizeof(crc));
      if (decode_shard_header({bad.data(), kShardHeaderBytes}, bad.size()).ok())
        bad = with_sums(bad);
    }
    write_file(folder.file("bad.mtok"), bad);
    const auto shard = ShardReader::open(folder.file("bad.mtok"));
    if (!shard.ok()) {
      ASSERT_EQ(shard.status().code(), absl::StatusCode::kDataLoss) << shard.status();
      continue;
    }
    ++opened;
    const ShardHeader& header = (*shard)->header();
    ASSERT_LE(kShardHeaderBytes + header.token_count * header.token_bytes, bad.size());
    ASSERT_LE(header.document_count * 8, bad.size());
    ASSERT_LE(header.blocks() * 8, bad.size());
    (void)(*shard)->verify_payload();
    std::vector<uint64_t> ends(header.document_count);
    if ((*shard)->document_ends(0, ends).ok()) {
      for (const uint64_t end : ends) ASSERT_LE(end, header.token_count);
    }
    std::vector<int32_t> tokens(header.token_count);
    if (!(*shard)->read(0, tokens).ok()) continue;
    for (const int32_t token : tokens) ASSERT_LT(static_cast<uint32_t>(token), header.vocab_size);
  }
  EXPECT_GT(opened, 50);
}

}  // namespace
}  // namespace muster::trainer
