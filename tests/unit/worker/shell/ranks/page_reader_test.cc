#include "worker/shell/ranks/page_reader.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "tests/unit/hanging_file.h"
#include "tests/unit/worker/shell/shell_fixture.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const RankKey kKey{JobId(1), Attempt(1), Rank(0)};
constexpr char kWarning[] =
    "progress pages in the work folder cannot be read for 10 s: heartbeats have no figures";

// The progress page is in a file system that does not respond.
class PageReaderTest : public ShellTest {
 protected:
  PageReaderTest() {
    std::filesystem::create_directories(std::filesystem::path(page).parent_path());
    write_file(page, "");
    hanging.emplace(page);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(logged)));
  }

  ~PageReaderTest() override { spdlog::set_default_logger(logger); }

  void SetUp() override {
    if (!hanging->hangs()) GTEST_SKIP() << "only root can make a file hang";
  }

  // Reads the page once; appends the number of pages to `ends` when the read has an end.
  void read() {
    reader.read({{kKey, 0, 0, false}}, now, [this](const std::vector<PageReader::Page>& pages) {
      ends.push_back(pages.size());
    });
  }

  size_t poll_ends() {
    loop.restart();
    loop.poll();
    return ends.size();
  }

  size_t warnings() const {
    size_t count = 0;
    const std::string text = logged.str();
    for (size_t at = text.find(kWarning); at != std::string::npos; at = text.find(kWarning, at + 1))
      ++count;
    return count;
  }

  boost::asio::io_context loop;
  const Launcher launcher{{folder, "", "", Incarnation(1)}, {}};
  const std::string page = launcher.folders().page_path(kKey.launch(), 0);
  const std::shared_ptr<spdlog::logger> logger = spdlog::default_logger();
  std::ostringstream logged;
  PageReader reader{loop, launcher};
  std::vector<size_t> ends;
  Instant now = instant_from_ns(1'000'000'000'000);
  std::optional<HangingFile> hanging;
};

TEST_F(PageReaderTest, AReadThatHangsIsAbandonedAndLoggedOnce) {
  read();
  now += kPagesHang / 2;
  read();
  EXPECT_EQ(ends, std::vector<size_t>{0}) << "the first read may still end";
  EXPECT_EQ(warnings(), 0U);
  for (int i = 0; i < 3; ++i) {
    now += kPagesHang;
    read();
  }
  EXPECT_EQ(ends, std::vector<size_t>{0}) << "each later read has a thread of its own";
  EXPECT_EQ(warnings(), 1U) << logged.str();
  hanging->release();
  ASSERT_TRUE(eventually([&] { return poll_ends() == 2; }));
  EXPECT_EQ(ends.back(), 1U);
  EXPECT_THAT(logged.str(), HasSubstr("progress pages in the work folder can be read again"));
}

TEST_F(PageReaderTest, WithTooManyThreadsThatHangThereAreNoPagesAndAWarning) {
  for (int i = 0; i < kHungFileTasksMax; ++i) {
    read();
    now += kPagesHang;
  }
  EXPECT_THAT(ends, IsEmpty());
  read();
  EXPECT_EQ(ends, std::vector<size_t>{0}) << "no thread can be started";
  EXPECT_EQ(warnings(), 1U) << logged.str();
  hanging->release();
  ASSERT_TRUE(eventually([&] {
    read();
    (void)poll_ends();
    return ends.back() == 1;
  }));
}

}  // namespace
}  // namespace muster::worker
