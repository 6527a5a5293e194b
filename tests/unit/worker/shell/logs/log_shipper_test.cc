#include "worker/shell/logs/log_shipper.h"

#include <chrono>
#include <string>
#include <vector>

#include "daemon/limits.h"
#include "tests/unit/worker/shell/shell_fixture.h"

namespace muster::worker {
namespace {

class LogShipperTest : public ShellTest {
 protected:
  void SetUp() override {
    path = folder / "rank.log";
    append("");
  }

  void append(const std::string& text) { std::ofstream(path, std::ios::app) << text; }

  // Runs the loop until `condition` holds.
  bool run_until(const std::function<bool()>& condition) {
    return eventually([&] {
      context.restart();
      context.run_for(std::chrono::milliseconds(1));
      return condition();
    });
  }

  // Runs the loop until the shipper has nothing to do.
  void run_until_idle() {
    (void)run_until([&, idle = 0]() mutable { return ++idle > 30; });
  }
  bool run_until_received(const std::string& text) {
    return run_until([&] { return received == text; });
  }

  bool is_drained() const { return shipper.is_drained(key, shipper.last_pump()); }

  bool take(LogChunk&& chunk) {
    if (room == 0) return false;
    --room;
    ++chunks;
    EXPECT_LE(chunk.data.size(), daemon::kLogChunkBytesMax);
    EXPECT_LE(chunk.offset, received.size()) << "no gap";
    received.resize(chunk.offset);
    received += chunk.data;
    return true;
  }

  std::string path;
  std::string received;
  size_t room = 1'000'000;
  size_t chunks = 0;
  std::vector<RankKey> settled;
  const RankKey key{JobId(1), Attempt(1), Rank(0)};
  boost::asio::io_context context{1};
  LogShipper shipper{context, [this](LogChunk&& chunk) { return take(std::move(chunk)); }, [] {},
                     [this](const RankKey& rank) { settled.push_back(rank); }};
};

TEST_F(LogShipperTest, ShipsOutputAsItIsWritten) {
  shipper.add(key, path);
  shipper.on_connected();
  append("one\n");
  ASSERT_TRUE(run_until([&] { return received == "one\n"; }));
  append("two");
  ASSERT_TRUE(run_until([&] { return received == "one\ntwo"; }));
  EXPECT_TRUE(run_until([&] { return is_drained(); }));
}

// A disk that does not answer blocks only the thread that reads.
TEST_F(LogShipperTest, TheCallerDoesNotReadTheFile) {
  append("text");
  shipper.add(key, path);
  shipper.on_connected();
  shipper.pump(true);
  EXPECT_EQ(received, "");
  EXPECT_FALSE(is_drained());
  ASSERT_TRUE(run_until_received("text"));
  EXPECT_TRUE(run_until([&] { return is_drained(); }));
}

// Reads of a slow disk may take longer than the time between two heartbeats.
TEST_F(LogShipperTest, LaterHeartbeatsDoNotDelayTheReportOfAnEnd) {
  append("the last line");
  shipper.add(key, path);
  shipper.on_connected();
  shipper.pump(true);
  const uint64_t end = shipper.last_pump();
  ASSERT_TRUE(run_until([&] {
    shipper.pump(true);
    return shipper.is_drained(key, end);
  }));
  EXPECT_EQ(received, "the last line");
}

TEST_F(LogShipperTest, FrequentLinesAreShippedTogether) {
  shipper.add(key, path);
  shipper.on_connected();
  std::string text;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 300; ++i) {
    append("line\n");
    text += "line\n";
    context.restart();
    context.run_for(std::chrono::microseconds(100));
  }
  ASSERT_TRUE(run_until([&] { return received == text; }));
  const auto batches = (std::chrono::steady_clock::now() - begin) / std::chrono::milliseconds(10);
  EXPECT_LE(chunks, static_cast<size_t>(batches) + 2);
}

TEST_F(LogShipperTest, ALongLogComesInBoundedChunks) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i) + "\n";
  append(text);
  shipper.add(key, path);
  shipper.on_connected();
  ASSERT_TRUE(run_until_received(text));
}

TEST_F(LogShipperTest, NothingIsShippedWithoutAConnection) {
  shipper.add(key, path);
  append("early");
  shipper.pump(true);
  run_until_idle();
  EXPECT_EQ(received, "");
  EXPECT_FALSE(is_drained());
  shipper.on_connected();
  ASSERT_TRUE(run_until_received("early"));
}

TEST_F(LogShipperTest, WaitsForSpaceAndContinues) {
  const std::string text(5 * daemon::kLogChunkBytesMax + 7, 'x');
  append(text);
  shipper.add(key, path);
  room = 2;
  shipper.on_connected();
  ASSERT_TRUE(run_until([&] { return room == 0; }));
  run_until_idle();
  EXPECT_EQ(received.size(), 2 * daemon::kLogChunkBytesMax);
  EXPECT_FALSE(is_drained());
  ASSERT_TRUE(run_until([&] {
    room = 1;
    shipper.pump();
    return is_drained();
  }));
  EXPECT_EQ(received, text);
}

TEST_F(LogShipperTest, UnacknowledgedOutputIsSentAgainAfterAReconnection) {
  append("0123456789");
  shipper.add(key, path);
  shipper.on_connected();
  ASSERT_TRUE(run_until_received("0123456789"));
  shipper.on_ack(key, 4);
  shipper.on_disconnected();
  received.resize(4);
  append("abc");
  shipper.on_connected();
  EXPECT_FALSE(is_drained());
  ASSERT_TRUE(run_until_received("0123456789abc"));
}

TEST_F(LogShipperTest, RejectedOutputIsSentAgainAtTheNextHeartbeat) {
  append("0123456789");
  shipper.add(key, path);
  shipper.on_connected();
  ASSERT_TRUE(run_until_received("0123456789"));
  received.clear();
  shipper.on_ack(key, 0);
  run_until_idle();
  EXPECT_EQ(received, "") << "not at once, again and again";
  shipper.pump(true);
  EXPECT_FALSE(is_drained());
  ASSERT_TRUE(run_until_received("0123456789"));
  EXPECT_TRUE(run_until([&] { return is_drained(); }));
}

TEST_F(LogShipperTest, ARejectedLogIsRetriedOncePerHeartbeat) {
  const size_t chunk = daemon::kLogChunkBytesMax;
  const std::string text(10 * chunk, 'x');
  append(text);
  shipper.add(key, path);
  room = 4;
  shipper.on_connected();
  ASSERT_TRUE(run_until([&] { return received.size() == 4 * chunk; }));
  room = 1'000'000;
  for (int refused = 0; refused < 4; ++refused) shipper.on_ack(key, 0);
  append("y");
  run_until_idle();  // notices the change
  EXPECT_EQ(room, 1'000'000U) << "shipped before the heartbeat";
  for (int heartbeat = 1; heartbeat <= 3; ++heartbeat) {
    shipper.pump(true);
    ASSERT_TRUE(run_until([&] { return room == 1'000'000U - heartbeat; }));
    shipper.pump(true);  // not answered yet
    run_until_idle();
    EXPECT_EQ(room, 1'000'000U - heartbeat);
    shipper.on_ack(key, 0);
  }
  shipper.pump(true);
  run_until_idle();
  shipper.on_ack(key, chunk);  // room again
  ASSERT_TRUE(run_until_received(text + "y"));
}

TEST_F(LogShipperTest, AnAcknowledgementOfARestartedCoordinatorMovesTheStart) {
  append("0123456789");
  shipper.add(key, path);
  shipper.on_connected();
  ASSERT_TRUE(run_until_received("0123456789"));
  shipper.on_ack(key, 10);
  shipper.on_disconnected();
  shipper.on_connected();
  run_until_idle();
  received.resize(2);
  shipper.on_ack(key, 2);  // it lost what it had not written to disk
  ASSERT_TRUE(run_until_received("0123456789"));
}

TEST_F(LogShipperTest, NonsenseAcknowledgementsAreIgnored) {
  append("0123");
  shipper.add(key, path);
  shipper.on_connected();
  ASSERT_TRUE(run_until_received("0123"));
  shipper.on_ack(key, 1'000'000);
  shipper.on_ack({JobId(9), Attempt(9), Rank(9)}, 1);
  append("4567");
  ASSERT_TRUE(run_until([&] { return received == "01234567"; }));
}

TEST_F(LogShipperTest, LogsAreIndependentAndEnd) {
  const RankKey other{JobId(1), Attempt(1), Rank(1)};
  shipper.add(key, path);
  shipper.add(other, folder / "absent.log");
  EXPECT_TRUE(shipper.is_drained(other, shipper.last_pump()))
      << "a log that cannot be read holds nothing up";
  shipper.on_connected();
  shipper.finish(key);
  ASSERT_TRUE(run_until([&] { return settled == std::vector{key}; })) << "it was empty";
  append("late");
  shipper.pump(true);
  run_until_idle();
  EXPECT_EQ(received, "");
  EXPECT_TRUE(is_drained());
  shipper.finish(other);
  EXPECT_EQ(settled, (std::vector{key, other}));
}

TEST_F(LogShipperTest, AFinishedLogIsClosedOnceAcknowledged) {
  append("0123456789");
  shipper.add(key, path);
  shipper.on_connected();
  shipper.finish(key);
  ASSERT_TRUE(run_until_received("0123456789"));
  shipper.on_ack(key, 4);
  EXPECT_TRUE(settled.empty());
  shipper.on_disconnected();
  received.resize(4);
  shipper.on_connected();
  ASSERT_TRUE(run_until_received("0123456789")) << "it is shipped until then";
  shipper.on_ack(key, 10);
  EXPECT_EQ(settled, std::vector{key});
  shipper.on_ack(key, 10);
  EXPECT_EQ(settled.size(), 1U);
}

// A coordinator that ended the log with a notice of its own has more than the file.
TEST_F(LogShipperTest, AnAcknowledgementBeyondTheEndSettlesTheLog) {
  append("0123");
  shipper.add(key, path);
  shipper.on_connected();
  ASSERT_TRUE(run_until_received("0123"));
  shipper.on_ack(key, 60);
  shipper.finish(key);
  ASSERT_TRUE(run_until([&] { return settled == std::vector{key}; }));
}

}  // namespace
}  // namespace muster::worker
