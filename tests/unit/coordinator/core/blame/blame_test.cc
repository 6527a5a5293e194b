#include "coordinator/core/blame/blame.h"

#include <algorithm>
#include <map>
#include <set>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "common/text/absl_view.h"
#include "tests/unit/coordinator/core/blame/hang_world.h"
#include "tests/unit/meshes.h"
#include "tests/unit/sanitized.h"

namespace muster::coordinator {
namespace {

Mesh random_mesh(std::mt19937_64& random, int32_t ranks) {
  Degrees degrees;
  degrees.fill(1);
  for (int32_t factor = 2; ranks > 1; ++factor)
    for (; ranks % factor == 0; ranks /= factor) degrees[random() % kMeshAxisCount] *= factor;
  return mesh_with(degrees);
}

void expect_sound(const Blame& blame, size_t ranks) {
  double sum = 0;
  std::set<Rank> named;
  for (size_t i = 0; i < blame.suspects.size(); ++i) {
    const Suspect& suspect = blame.suspects[i];
    EXPECT_TRUE(named.insert(suspect.rank).second) << "listed twice: " << suspect.rank;
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

// Returns whether the rank is named, alone or together with one equally likely: of two ranks that
// disagree, no evidence may show which one is right.
bool is_named(const Blame& blame, int32_t rank) {
  const auto& suspects = blame.suspects;
  for (size_t i = 0; i < std::min<size_t>(2, suspects.size()); ++i) {
    if (suspects[i].confidence < suspects[0].confidence - 1e-9) break;
    if (suspects[i].rank.value() == rank)
      return suspects.size() < 3 || suspects[2].confidence < suspects[i].confidence - 1e-9;
  }
  return false;
}

// The number of worlds in which the culprit was named.
struct Score {
  int right = 0, all = 0;
};

class BlameInWorlds : public testing::TestWithParam<Break> {
 protected:
  // Runs one world for each mesh and seed, and passes its blame to `judge`, once with pages alone
  // and once with stacks.
  template <class F>
  void for_each_world(Break how, int broken_ranks, F&& judge) {
    std::map<int32_t, int> rounds_of = {{8, 24}, {24, 10}, {64, 5}};
    // A world of this size takes nearly all of the running time.
    if (broken_ranks == 1 && !kSanitized) rounds_of[1024] = 1;
    for (const auto& [ranks, rounds] : rounds_of) {
      for (int round = 0; round < rounds; ++round) {
        std::mt19937_64 random(static_cast<uint64_t>(ranks * 1000 + round));
        const Mesh mesh = random_mesh(random, ranks);
        std::vector<BrokenRank> broken;
        while (static_cast<int>(broken.size()) < broken_ranks) {
          const auto rank = static_cast<int32_t>(random() % static_cast<uint64_t>(ranks));
          const bool is_new = std::none_of(broken.begin(), broken.end(),
                                           [&](const BrokenRank& one) { return one.rank == rank; });
          if (is_new) broken.push_back({rank, how});
        }
        HangWorld world(mesh, random());
        if (!world.run(broken)) continue;
        for (const bool with_stacks : {false, true}) {
          const Blame found = blame(world.describe(with_stacks));
          expect_sound(found, static_cast<size_t>(ranks));
          judge(world, broken, with_stacks, found,
                absl::StrCat(mesh.to_string(), ", round ", round,
                             with_stacks ? ", stacks" : ", pages", ", broken ", broken[0].rank,
                             ": ", found.sentence));
        }
      }
    }
  }
};

// A culprit that differs from all other ranks is named every time. A rank with other calls is named
// if there are ranks to compare it with. A rank that stands still inside a collective is recognised
// only by its stack; of two members, either may be named.
TEST_P(BlameInWorlds, NamesTheCulprit) {
  const Break how = GetParam();
  std::map<bool, Score> scores;  // key: whether the score has stacks
  std::string wrong;
  for_each_world(how, 1,
                 [&](const HangWorld&, const std::vector<BrokenRank>& broken, bool with_stacks,
                     const Blame& found, const std::string& what) {
                   Score& score = scores[with_stacks];
                   ++score.all;
                   if (is_named(found, how == Break::kTransport ? -1 : broken[0].rank)) {
                     ++score.right;
                   } else {
                     absl::StrAppend(&wrong, "\n", what);
                   }
                 });
  const bool makes_other_calls =
      how == Break::kSkips || how == Break::kOtherCall || how == Break::kOtherGroup;
  for (const auto& [with_stacks, score] : scores) {
    SCOPED_TRACE(
        absl::StrCat(with_stacks ? "stacks: " : "pages: ", score.right, " of ", score.all));
    RecordProperty(with_stacks ? "right_with_stacks" : "right", score.right);
    EXPECT_GT(score.all, 25);
    if (how == Break::kInside) {
      EXPECT_GE(score.right, with_stacks ? score.all / 2 : 0) << wrong;
    } else {
      EXPECT_GE(score.right, makes_other_calls ? score.all * 95 / 100 : score.all) << wrong;
    }
  }
}

std::string name_of(const testing::TestParamInfo<Break>& one) {
  std::string name(kBreakNames[static_cast<size_t>(one.param)]);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

std::vector<Break> all_breaks() {
  std::vector<Break> all;
  for (size_t i = 0; i < kBreakNames.size(); ++i) all.push_back(static_cast<Break>(i));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Breaks, BlameInWorlds, testing::ValuesIn(all_breaks()), name_of);

// Faults that are visible without other ranks. Two faults of other kinds may hide each other.
class BlameOfTwo : public BlameInWorlds {};

// Both culprits are among the first two suspects, if both reached the place where they break.
TEST_P(BlameOfTwo, NamesBoth) {
  int both = 0;
  for_each_world(GetParam(), 2,
                 [&](const HangWorld& world, const std::vector<BrokenRank>& broken, bool,
                     const Blame& found, const std::string& what) {
                   if (!world.is_broken(broken[0].rank) || !world.is_broken(broken[1].rank)) return;
                   ++both;
                   for (const BrokenRank& one : broken) {
                     EXPECT_TRUE(found.suspects[0].rank.value() == one.rank ||
                                 found.suspects[1].rank.value() == one.rank)
                         << one.rank << " of " << what;
                   }
                 });
  EXPECT_GT(both, 5);
}

INSTANTIATE_TEST_SUITE_P(Breaks, BlameOfTwo,
                         testing::Values(Break::kStopped, Break::kGone, Break::kLoader,
                                         Break::kFsync, Break::kZombie),
                         name_of);

}  // namespace
}  // namespace muster::coordinator
