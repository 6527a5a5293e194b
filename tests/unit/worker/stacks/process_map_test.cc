#include "worker/stacks/process_map.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/mutate.h"
#include "worker/stacks/blocked_thread.h"

namespace muster::worker {
namespace {

constexpr char kMaps[] =
    "00400000-00401000 r--p 00000000 08:01 11    /opt/a program (x)\n"
    "00401000-00405000 r-xp 00001000 08:01 11    /opt/a program (x)\n"
    "00405000-00406000 rw-p 00004000 08:01 11    /opt/a program (x)\n"
    "00406000-00407000 rw-p 00000000 00:00 0     [heap]\n"
    "7f0000000000-7f0000001000 r-xp 00000000 00:00 0 \n"
    "7f0000010000-7f0000011000 r--p 00000000 08:01 12    /usr/share/data.txt\n"
    "7f0000020000-7f0000021000 r--p 00000000 08:01 13    /lib/libx.so (deleted)\n"
    "7f0000021000-7f0000022000 r-xp 00001000 08:01 13    /lib/libx.so (deleted)\n"
    "7f0000022000-7f0000023000 rw-p 00000000 00:00 0 \n"
    "7f0000023000-7f0000024000 rw-p 00003000 08:01 13    /lib/libx.so (deleted)\n"
    "7f0000030000-7f0000031000 r-xp 00005000 08:01 14    /lib/cut.so\n"
    "7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0     [vdso]\n";

TEST(ProcessMapTest, ModulesAreFilesWithCode) {
  const ProcessMap map = parse_process_map(kMaps);
  ASSERT_EQ(map.modules.size(), 3);
  EXPECT_EQ(map.modules[0].path, "/opt/a program (x)");
  EXPECT_EQ(map.modules[0].start, 0x400000);
  EXPECT_EQ(map.modules[0].end, 0x406000);
  EXPECT_EQ(map.modules[0].first_end, 0x401000);
  EXPECT_EQ(map.modules[1].path, "/lib/libx.so (deleted)");
  EXPECT_EQ(map.modules[1].end, 0x7f0000024000) << "zeroed data between is part of it";
  EXPECT_EQ(map.modules[2].path, "[vdso]");
}

// Segments of small files, as lld and mold lay them out, begin in one page; another mapping of the
// file may precede them.
TEST(ProcessMapTest, SegmentsThatShareTheFirstPageAreOneModule) {
  const ProcessMap map = parse_process_map(
      "1000-2000 r--p 00000000 08:01 11 /a\n"
      "2000-3000 r-xp 00000000 08:01 11 /a\n"
      "3000-4000 rw-p 00001000 08:01 11 /a\n"
      "4000-5000 r--p 00000000 08:01 11 /a\n"
      "5000-6000 r-xp 00000000 08:01 11 /a\n");
  ASSERT_EQ(map.modules.size(), 2);
  EXPECT_EQ(map.modules[0].start, 0x1000);
  EXPECT_EQ(map.modules[0].end, 0x4000);
  EXPECT_EQ(map.modules[1].start, 0x4000);
  EXPECT_EQ(map.find(0x2000)->module, 0);
  EXPECT_EQ(map.find(0x5000)->module, 1);
}

TEST(ProcessMapTest, AddressesFindTheirCode) {
  const ProcessMap map = parse_process_map(kMaps);
  ASSERT_NE(map.find(0x401000), nullptr);
  EXPECT_EQ(map.find(0x404fff)->module, 0);
  EXPECT_EQ(map.find(0x400000), nullptr) << "a header is no code";
  EXPECT_EQ(map.find(0x405000), nullptr);
  EXPECT_EQ(map.find(0x7f0000000800)->module, -1) << "of no file";
  EXPECT_EQ(map.find(0x7f0000021000)->module, 1);
  EXPECT_EQ(map.find(0x7f0000030000)->module, -1) << "its beginning is not mapped";
  EXPECT_EQ(map.find(0x7ffc00000000)->module, 2);
  EXPECT_EQ(map.find(0), nullptr);
  EXPECT_EQ(map.writable_end(0x406800), 0x407000);
  EXPECT_EQ(map.writable_end(0x404800), 0x404800);
  EXPECT_EQ(map.find(~uint64_t{0}), nullptr);
}

// Whatever the text is, indices stay in range.
TEST(ProcessMapTest, DamagedMapsAreHarmless) {
  Mutator mutator(1);
  for (int i = 0; i < 2000; ++i) {
    const ProcessMap map = parse_process_map(mutator.mutate(kMaps));
    for (const ExecutableRange& range : map.code) {
      ASSERT_LT(range.start, range.end);
      ASSERT_LT(range.module, std::ssize(map.modules));
    }
  }
}

int here() { return 7; }

TEST(ProcessMapTest, OwnHeadersAgreeWithTheLinker) {
  const auto map = read_process_map("/proc", getpid());
  ASSERT_TRUE(map.has_value());
  const auto address = reinterpret_cast<uint64_t>(&here);
  const ExecutableRange* range = map->find(address);
  ASSERT_NE(range, nullptr);
  ASSERT_GE(range->module, 0);
  const MappedModule& module = map->modules[static_cast<size_t>(range->module)];
  const auto headers = read_module_headers(getpid(), module);
  ASSERT_TRUE(headers.has_value());
  EXPECT_NE(headers->unwind_header, 0);
  const bool inside = std::ranges::any_of(headers->segments, [&](const auto& segment) {
    return address >= segment.address && address < segment.address + segment.bytes;
  });
  EXPECT_TRUE(inside);
  EXPECT_FALSE(read_process_map("/proc", -1).has_value());
}

TEST(ProcessMapTest, FrameRecordsAreFoundAfterOtherWords) {
  const ProcessMap map = parse_process_map(kMaps);
  // words: noise, noise, record -> word 5, noise, record -> word 7, noise, end
  constexpr uint64_t kBase = 0x7ffd00000000;
  const std::vector<uint64_t> words = {1,          0x401200, kBase + 40, 0x401100, 9,
                                       kBase + 56, 0x402000, 0,          0x403000};
  ThreadCopy thread;
  thread.stack_address = kBase;
  thread.registers.stack_pointer = kBase;
  thread.stack.resize(words.size() * sizeof(uint64_t));
  std::memcpy(thread.stack.data(), words.data(), thread.stack.size());
  EXPECT_EQ(find_frame_record(thread, map), kBase + 16);
  thread.stack.resize(4 * sizeof(uint64_t));
  EXPECT_EQ(find_frame_record(thread, map), 0) << "a single link may be a chance";
}

}  // namespace
}  // namespace muster::worker
