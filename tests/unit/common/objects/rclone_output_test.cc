#include "common/objects/rclone_output.h"

#include <optional>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace muster::rclone {
namespace {

TEST(RcloneOutput, StatesTheBytesThatAreSent) {
  struct Case {
    std::string_view line;
    std::optional<uint64_t> bytes;
  };
  const Case table[] = {
      {"2026/11/28 13:59:57 INFO  :     2.500 MiB / 5.722 MiB, 35%, 0 B/s, ETA -", 2'621'440},
      {"2026/11/28 13:59:57 INFO  :          0 B / 5.722 MiB, 0%, 0 B/s, ETA -", 0},
      {"2026/11/28 13:59:57 INFO  :        12 B / 12 B, 100%, 0 B/s, ETA -", 12},
      {"2026/11/28 13:59:57 INFO  :     1.5 KiB / 3 KiB, 50%, 0 B/s, ETA -", 1536},
      {"2026/11/28 13:59:57 INFO  :     1.500 GiB / 3.000 TiB, 0%, 1 B/s, ETA 9d", 1'610'612'736},
      {"2026/11/28 13:59:57 INFO  :     2 MiByte / 5 MiByte, 40%, 0 Byte/s, ETA -", 2'097'152},
      {"2026/11/28 13:59:57 INFO  : 1 MiB / 2 MiB: Copied (new)", std::nullopt},
      {"2026/11/28 13:59:57 INFO  : x: Copied (new)", std::nullopt},
      {"2026/11/28 13:59:57 ERROR :     2.5 MiB / 5.7 MiB, 35%, 0 B/s, ETA -", std::nullopt},
      {"2026/11/28 13:59:57 INFO  :     -1 MiB / 5.7 MiB, 35%, 0 B/s, ETA -", std::nullopt},
      {"2026/11/28 13:59:57 INFO  :     2.5 MiB", std::nullopt},
      {"", std::nullopt},
  };
  for (const Case& one : table) EXPECT_EQ(sent_bytes(one.line), one.bytes) << one.line;
}

TEST(RcloneOutput, AStoreThatCannotBeReachedHasAReason) {
  EXPECT_EQ(why_unreachable("dial tcp 127.0.0.1:9: connect: connection refused"),
            "connection refused");
  EXPECT_EQ(why_unreachable("dial tcp: lookup s on 10.0.0.1:53: no such host"), "no such host");
  EXPECT_EQ(why_unreachable("dial tcp 10.0.0.1:9000: i/o timeout"), "no connection in time");
  EXPECT_EQ(why_unreachable("AccessDenied: Access Denied.\n\tstatus code: 403"), "");
}

TEST(RcloneOutput, ACauseHasNoNamesOfOurs) {
  EXPECT_EQ(cause_of("2026/11/28 17:49:04 Failed to create file system for \"musterstore:b/x\": "
                     "failed to configure Google Cloud Storage: google: could not find default "
                     "credentials.\n"),
            "could not find default credentials.");
  EXPECT_EQ(cause_of("2026/11/28 17:49:04 ERROR : : error listing: AccessDenied: no\n"),
            "error listing: AccessDenied: no");
}

TEST(RcloneOutput, StatisticsArriveInPieces) {
  const std::string_view text =
      "2026/11/28 13:59:57 INFO  :  3 B / 9 B, 33%, 0 B/s, ETA -\n"
      "2026/11/28 13:59:58 INFO  : x: Copied (new)\n"
      "2026/11/28 13:59:59 INFO  :  9 B / 9 B, 100%, 0 B/s, ETA -\n";
  for (size_t piece = 1; piece < text.size(); ++piece) {
    std::vector<uint64_t> sent;
    const StatsReader::Meter meter = [&](uint64_t bytes) { sent.push_back(bytes); };
    StatsReader reader(meter);
    for (size_t at = 0; at < text.size(); at += piece) reader.add(text.substr(at, piece));
    EXPECT_EQ(sent, (std::vector<uint64_t>{3, 9})) << piece;
  }
}

}  // namespace
}  // namespace muster::rclone
