#include "coordinator/core/blame/components.h"

#include <random>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

TEST(Components, AreRanksThatReachEachOther) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const size_t n = 1 + random() % 12;
    std::vector<std::vector<uint32_t>> edges(n);
    std::vector<std::vector<bool>> reaches(n, std::vector<bool>(n));
    for (size_t i = 0; i < n; ++i) reaches[i][i] = true;
    for (size_t count = random() % (2 * n); count > 0; --count) {
      const size_t from = random() % n, to = random() % n;
      edges[from].push_back(static_cast<uint32_t>(to));
      reaches[from][to] = true;
    }
    for (size_t k = 0; k < n; ++k)
      for (size_t i = 0; i < n; ++i)
        for (size_t j = 0; j < n; ++j)
          if (reaches[i][k] && reaches[k][j]) reaches[i][j] = true;
    const auto component = components_of(edges);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        EXPECT_EQ(component[i] == component[j], reaches[i][j] && reaches[j][i]);
        if (reaches[i][j]) {
          EXPECT_GE(component[i], component[j]);
        }
      }
    }
  }
}

TEST(Components, ALongPathTakesNoStack) {
  std::vector<std::vector<uint32_t>> edges(1'000'000);
  for (uint32_t i = 0; i + 1 < edges.size(); ++i) edges[i].push_back(i + 1);
  EXPECT_EQ(components_of(edges)[0], edges.size() - 1);
}

}  // namespace
}  // namespace muster::coordinator
