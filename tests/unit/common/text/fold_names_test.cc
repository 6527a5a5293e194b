#include "common/text/fold_names.h"

#include <cstdlib>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

using Names = std::vector<std::string>;

TEST(FoldNames, ConsecutiveNumbersAreRanges) {
  const struct {
    Names names;
    const char* expected;
  } kCases[] = {
      {{}, ""},
      {{"login"}, "login"},
      {{"node7"}, "node7"},
      {{"node1", "node2", "node3", "node7"}, "node[1-3,7]"},
      {{"node009", "node010", "node011"}, "node[009-011]"},
      {{"node9", "node10"}, "node[9-10]"},
      {{"node09", "node010"}, "node[09,010]"},
      {{"a1", "a2", "b3"}, "a[1-2], b3"},
      {{"gpu-1.cluster", "gpu-2.cluster"}, "gpu-[1-2].cluster"},
      {{"rack1-node2", "rack1-node3", "rack2-node2"}, "rack1-node[2-3], rack2-node2"},
      {{"node3", "node2", "node1"}, "node[3,2,1]"},
      {{"n99999999999999999999", "n100000000000000000000"},
       "n99999999999999999999, n100000000000000000000"},
  };
  for (const auto& c : kCases) EXPECT_EQ(fold_names(c.names, 1000), c.expected);
}

// Reads a list without "more" back into names.
Names unfold(std::string text) {
  Names names;
  static const std::regex kElement(R"(([^,\[ ]+)(?:\[([^\]]*)\]([^, ]*))?)");
  for (std::sregex_iterator it(text.begin(), text.end(), kElement), end; it != end; ++it) {
    if (!(*it)[2].matched) {
      names.push_back((*it)[1]);
      continue;
    }
    static const std::regex kRange(R"((\d+)(?:-(\d+))?)");
    const std::string ranges = (*it)[2];
    for (std::sregex_iterator r(ranges.begin(), ranges.end(), kRange); r != end; ++r) {
      const std::string from = (*r)[1];
      const int last = std::atoi(((*r)[2].matched ? (*r)[2].str() : from).c_str());
      for (int i = std::atoi(from.c_str()); i <= last; ++i) {
        std::string digits = std::to_string(i);
        if (digits.size() < from.size()) digits.insert(0, from.size() - digits.size(), '0');
        names.push_back((*it)[1].str() + digits + (*it)[3].str());
      }
    }
  }
  return names;
}

TEST(FoldNames, EveryListCanBeReadBack) {
  std::mt19937 random(7);  // NOLINT: the same lists in each run
  for (int list = 0; list < 500; ++list) {
    Names names;
    int number = 0;
    const int width = static_cast<int>(random() % 4);
    for (size_t i = random() % 60; i > 0; --i) {
      number = random() % 4 == 0 ? static_cast<int>(random() % 2000) : number + 1;
      std::string digits = std::to_string(number);
      if (digits.size() < static_cast<size_t>(width)) digits.insert(0, width - digits.size(), '0');
      names.push_back((random() % 9 == 0 ? "b" : "node-") + digits + (list % 2 ? ".x" : ""));
    }
    const std::string all = fold_names(names, 100'000);
    EXPECT_EQ(unfold(all), names) << all;
    const std::string cut = fold_names(names, 40);
    EXPECT_LE(cut.size(), 40 + std::string(" and 60 more").size()) << cut;
    const size_t more = cut.find(" and ");
    const Names shown = unfold(cut.substr(0, more));
    const size_t left = more == std::string::npos ? 0 : std::atoi(cut.c_str() + more + 5);
    ASSERT_EQ(shown.size() + left, names.size()) << cut;
    EXPECT_TRUE(std::equal(shown.begin(), shown.end(), names.begin())) << cut;
  }
}

}  // namespace
}  // namespace muster
