// One test per scenario file in this folder.
#include "tests/scenarios/scenario.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/paths.h"

namespace muster::coordinator {
namespace {

std::vector<std::string> stories() {
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(source_dir() + "/tests/scenarios/coordinator")) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class ScenarioTest : public testing::TestWithParam<std::string> {};

TEST_P(ScenarioTest, GoesAsWritten) {
  Scenario scenario;
  EXPECT_EQ(scenario.run(GetParam()), "");
}

INSTANTIATE_TEST_SUITE_P(Coordinator, ScenarioTest, testing::ValuesIn(stories()),
                         [](const auto& test) {
                           return std::filesystem::path(test.param).stem().string();
                         });

}  // namespace
}  // namespace muster::coordinator
