// A temporary folder with shell scripts in the trainer's place.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "common/time.h"

namespace muster::worker {

// Real processes on a loaded machine may be slow; nothing here waits this long unless it is broken.
constexpr Duration kPatience = std::chrono::seconds(20);

inline bool eventually(const std::function<bool()>& condition) {
  const Instant deadline = monotonic_now() + kPatience;
  while (!condition()) {
    if (monotonic_now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

inline std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ShellTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "muster_worker_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = std::filesystem::canonical(pattern);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string script(const std::string& body) {
    const std::filesystem::path path = folder / "trainer.sh";
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

  std::filesystem::path folder;
};

}  // namespace muster::worker
