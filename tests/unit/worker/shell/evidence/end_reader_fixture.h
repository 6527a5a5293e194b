// A fixture with the output of a rank in a launcher's folder, a kernel log and an event loop.
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "worker/shell/evidence/end_reader.h"

namespace muster::worker {

inline const RankKey kKey{JobId(1), Attempt(1), Rank(0)};

class EndReaderTest : public testing::Test {
 protected:
  EndReaderTest() {
    const std::string log = launcher.folders().log_path(kKey);
    std::filesystem::create_directories(std::filesystem::path(log).parent_path());
    std::ofstream file(log);
    for (int i = 0; i < 50; ++i) file << "line " << i << "\n";
  }

  EndedRank ended(int signal) const {
    EndedRank rank;
    rank.event = {.key = kKey, .exit_code = -1, .signal = signal, .detail = ""};
    rank.local_rank = 0;
    rank.pid = 4711;
    return rank;
  }

  // A kernel log with one record, whose clock is `ahead` of the monotonic one.
  std::string kernel_log(const std::string& text, Duration ahead = {}) {
    const std::string path = folder.file("kmsg");
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
        monotonic_now().time_since_epoch() + ahead);
    std::ofstream(path) << "6,1," << now.count() << ",-;" << text;
    return path;
  }

  std::vector<RankReaped> read(const EndReaderOptions& options, std::vector<EndedRank> ranks) {
    std::vector<RankReaped> events;
    const size_t count = ranks.size();
    EndReader reader(loop, launcher, options, [&](RankReaped event) {
      events.push_back(std::move(event));
      if (events.size() == count) loop.stop();
    });
    reader.read(std::move(ranks));
    loop.run_for(std::chrono::seconds(20));
    return events;
  }

  TempFolder folder;
  boost::asio::io_context loop;
  Launcher launcher{{folder.path(), "", "", Incarnation(1)}, {}};
};

}  // namespace muster::worker
