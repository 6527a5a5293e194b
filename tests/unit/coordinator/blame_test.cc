#include "coordinator/core/blame.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "common/absl_view.h"
#include "tests/unit/coordinator/hang_world.h"
#include "tests/unit/meshes.h"

namespace muster::coordinator {
namespace {

Mesh random_mesh(std::mt19937_64& random, int32_t ranks) {
  static std::map<int32_t, std::vector<Degrees>> all;
  std::vector<Degrees>& shapes = all[ranks];
  if (shapes.empty()) shapes = factorisations(ranks);
  return mesh_of(shapes[random() % shapes.size()]);
}

void expect_sound(const Blame& blame, size_t ranks) {
  double sum = 0;
  std::set<Rank> named;
  for (size_t i = 0; i < blame.suspects.size(); ++i) {
    const Suspect& suspect = blame.suspects[i];
    EXPECT_TRUE(named.insert(suspect.rank).second) << "twice: " << suspect.rank;
    EXPECT_FALSE(suspect.why.empty());
    EXPECT_GT(suspect.confidence, 0);
    if (i > 0) EXPECT_LE(suspect.confidence, blame.suspects[i - 1].confidence);
    sum += suspect.confidence;
  }
  EXPECT_LE(sum, 1);
  EXPECT_LE(blame.suspects.size(), kSuspectsMax);
  if (ranks >= 2) EXPECT_GE(blame.suspects.size(), 2U) << blame.sentence;
  EXPECT_FALSE(blame.sentence.empty());
  EXPECT_LE(blame.sentence.size(), kSentenceBytesMax);
}

struct Score {
  int right = 0;
  int all = 0;
  std::string text() const { return absl::StrCat(right, "/", all); }
};

// Whom blame names when one rank of a random mesh is broken at a random place.
class BlameInWorlds : public testing::TestWithParam<Break> {};

TEST_P(BlameInWorlds, NamesTheCulprit) {
  const Break how = GetParam();
  Score pages, stacks;
  for (const auto& [ranks, rounds] : std::map<int32_t, int>{{8, 40}, {64, 20}, {1024, 2}}) {
    for (int round = 0; round < rounds; ++round) {
      for (const bool with_stacks : {false, true}) {
        const auto seed = static_cast<uint64_t>(ranks * 1000 + round);
        std::mt19937_64 random(seed);
        const Mesh mesh = random_mesh(random, ranks);
        const auto culprit = static_cast<int32_t>(random() % static_cast<uint64_t>(ranks));
        HangWorld world(mesh, random());
        const auto input = world.run({{culprit, how}}, with_stacks);
        if (!input) continue;
        const Blame found = blame(*input);
        expect_sound(found, static_cast<size_t>(ranks));
        Score& score = with_stacks ? stacks : pages;
        ++score.all;
        const int32_t expected = how == Break::kTransport ? -1 : culprit;
        const bool right = !found.suspects.empty() && found.suspects[0].rank.value() == expected;
        if (right) ++score.right;
        if (!right && (std::getenv("BLAME_SHOW") != nullptr))
          std::cerr << mesh.to_string() << " seed " << seed << (with_stacks ? " stacks" : " pages")
                    << " culprit " << culprit << ": " << found.sentence << "\n";
      }
    }
  }
  std::cerr << kBreakNames[static_cast<size_t>(how)] << ": pages " << pages.text() << ", stacks "
            << stacks.text() << "\n";
}

INSTANTIATE_TEST_SUITE_P(Breaks, BlameInWorlds, testing::ValuesIn([] {
                           std::vector<Break> all;
                           for (size_t i = 0; i < kBreakNames.size(); ++i)
                             all.push_back(static_cast<Break>(i));
                           return all;
                         }()),
                         [](const auto& info) {
                           std::string name(kBreakNames[static_cast<size_t>(info.param)]);
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace muster::coordinator
