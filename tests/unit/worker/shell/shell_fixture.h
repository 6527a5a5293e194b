// A fixture with a temporary folder and shell scripts that replace the trainer.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "common/time/time.h"
#include "tests/unit/temp_folder.h"

namespace muster::worker {

// Time limit of waits in these tests. Processes may be slow on a loaded machine, but only a defect
// makes a wait last this long.
constexpr Duration kPatience = std::chrono::seconds(20);

inline bool eventually(const std::function<bool()>& condition) {
  const Instant deadline = monotonic_now() + kPatience;
  while (!condition()) {
    if (monotonic_now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

class ShellTest : public ::testing::Test {
 protected:
  std::string script(const std::string& body) {
    // Each script has its own name: an earlier process may not have read its script yet.
    const std::filesystem::path path = folder / ("trainer-" + std::to_string(scripts_++) + ".sh");
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

  const TempFolder temp;
  const std::filesystem::path folder = temp.path();

 private:
  int scripts_ = 0;
};

}  // namespace muster::worker
