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
  Degrees degrees;
  degrees.fill(1);
  for (int32_t factor = 2; ranks > 1; ++factor)
    for (; ranks % factor == 0; ranks /= factor) degrees[random() % kMeshAxisCount] *= factor;
  return mesh_of(degrees);
}

void expect_sound(const Blame& blame, size_t ranks) {
  double sum = 0;
  std::set<Rank> named;
  for (size_t i = 0; i < blame.suspects.size(); ++i) {
    const Suspect& suspect = blame.suspects[i];
    EXPECT_TRUE(named.insert(suspect.rank).second) << "twice: " << suspect.rank;
    EXPECT_FALSE(suspect.why.empty());
    EXPECT_GT(suspect.confidence, 0);
    if (i > 0) {
      EXPECT_LE(suspect.confidence, blame.suspects[i - 1].confidence);
    }
    sum += suspect.confidence;
  }
  EXPECT_LE(sum, 1);
  EXPECT_LE(blame.suspects.size(), kSuspectsMax);
  EXPECT_GE(blame.suspects.size(), std::min<size_t>(2, ranks)) << blame.sentence;
  EXPECT_FALSE(blame.sentence.empty());
  EXPECT_LE(blame.sentence.size(), kSentenceBytesMax);
}

// Whether the rank is named, alone or beside one that is as likely: of two who disagree, nobody may know who is right.
bool is_named(const Blame& blame, int32_t rank) {
  const auto& suspects = blame.suspects;
  for (size_t i = 0; i < std::min<size_t>(2, suspects.size()); ++i) {
    if (suspects[i].confidence < suspects[0].confidence - 1e-9) break;
    if (suspects[i].rank.value() == rank)
      return suspects.size() < 3 || suspects[2].confidence < suspects[i].confidence - 1e-9;
  }
  return false;
}

struct Score {
  int right = 0, alone = 0, all = 0;
};

// Whom blame names when one rank of a random mesh is broken at a random place.
class BlameInWorlds : public testing::TestWithParam<Break> {};

TEST_P(BlameInWorlds, NamesTheCulprit) {
  const Break how = GetParam();
  std::map<bool, Score> scores;  // with stacks
  for (const auto& [ranks, rounds] :
       std::map<int32_t, int>{{8, 40}, {24, 20}, {64, 20}, {1024, 1}}) {
    for (int round = 0; round < rounds; ++round) {
      const auto seed = static_cast<uint64_t>(ranks * 1000 + round);
      std::mt19937_64 random(seed);
      const Mesh mesh = random_mesh(random, ranks);
      const auto culprit = static_cast<int32_t>(random() % static_cast<uint64_t>(ranks));
      HangWorld world(mesh, random());
      if (!world.run({{culprit, how}})) continue;
      for (const bool with_stacks : {false, true}) {
        const Blame found = blame(world.describe(with_stacks));
        expect_sound(found, static_cast<size_t>(ranks));
        Score& score = scores[with_stacks];
        ++score.all;
        const bool right = is_named(found, how == Break::kTransport ? -1 : culprit);
        if (right) ++score.right;
        if (right && found.suspects[1].confidence < found.suspects[0].confidence - 1e-9)
          ++score.alone;
        if (!right && (std::getenv("BLAME_SHOW") != nullptr))
          std::cerr << mesh.to_string() << " seed " << seed << (with_stacks ? " stacks" : " pages")
                    << " culprit " << culprit << ": " << found.sentence << "\n";
      }
    }
  }
  for (const auto& [with_stacks, score] : scores)
    std::cerr << kBreakNames[static_cast<size_t>(how)] << (with_stacks ? ": stacks " : ": pages ")
              << score.right << " (alone " << score.alone << ") of " << score.all << "\n";
}

INSTANTIATE_TEST_SUITE_P(Breaks, BlameInWorlds, testing::ValuesIn([] {
                           std::vector<Break> all;
                           for (size_t i = 0; i < kBreakNames.size(); ++i)
                             all.push_back(static_cast<Break>(i));
                           return all;
                         }()),
                         [](const auto& one) {
                           std::string name(kBreakNames[static_cast<size_t>(one.param)]);
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace muster::coordinator
