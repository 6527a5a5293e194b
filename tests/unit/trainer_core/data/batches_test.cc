#include "trainer_core/data/batches.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/data/token_folder.h"
#include "trainer_core/data/prefetch.h"

namespace muster::trainer {
namespace {

constexpr int32_t kLength = 16;

std::unique_ptr<Samples> open_samples(const std::string& folder,
                                      Samples::Kind kind = Samples::Kind::kPacked) {
  auto dataset = TokenDataset::open(folder, kFolderVocab);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return Samples::make(kind, Corpus(*std::move(dataset)), kLength);
}

BatchBuffers numbers_for(int32_t sequences) {
  const auto count = static_cast<size_t>(sequences * kLength);
  return {std::vector<int32_t>(count), std::vector<int32_t>(count), std::vector<int32_t>(count),
          std::vector<float>(count)};
}

void append(BatchBuffers& to, const BatchBuffers& from) {
  to.tokens.insert(to.tokens.end(), from.tokens.begin(), from.tokens.end());
  to.targets.insert(to.targets.end(), from.targets.begin(), from.targets.end());
  to.starts.insert(to.starts.end(), from.starts.begin(), from.starts.end());
  to.weights.insert(to.weights.end(), from.weights.begin(), from.weights.end());
}

bool same(const BatchBuffers& a, const BatchBuffers& b) {
  return a.tokens == b.tokens && a.targets == b.targets && a.starts == b.starts &&
         a.weights == b.weights;
}

class Batches : public testing::Test {
 protected:
  void SetUp() override {
    // 50 and 23 sequences, so that epochs end at different positions.
    make_token_folder(one_.path(), into_shards(counting_documents(60, 26, 4), {7, 1, 30}));
    std::vector<Document> documents = counting_documents(30, 24, 5);
    for (Document& document : documents)
      for (int32_t& token : document) token = kFolderVocab - 1 - token;
    make_token_folder(two_.path(), {documents});
  }

  std::unique_ptr<BatchSource> source(const BatchGeometry& geometry, uint64_t seed,
                                      bool shuffle = true) const {
    std::vector<WeightedSamples> sources;
    sources.push_back({open_samples(one_.path()), 0.7});
    sources.push_back({open_samples(two_.path()), 0.3});
    return BatchSource::endless(std::move(sources), geometry, seed, shuffle);
  }

  // Returns the global batch of 8 sequences from sample `first` on, as `ranks` ranks read it in
  // micro-batches of `part`.
  BatchBuffers global_batch(int32_t ranks, int32_t part, uint64_t first, uint64_t seed) const {
    const int32_t per_device = 8 / ranks;
    BatchBuffers all;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const auto batches = source({rank, ranks, per_device, kLength, kFolderVocab}, seed);
      for (int32_t skipped = 0; skipped < per_device; skipped += part) {
        BatchBuffers numbers = numbers_for(part);
        EXPECT_TRUE(batches
                        ->fill(first, skipped,
                               {numbers.tokens, numbers.targets, numbers.starts, numbers.weights})
                        .ok());
        append(all, numbers);
      }
    }
    return all;
  }

  TempFolder one_, two_;
};

TEST_F(Batches, TheGlobalBatchIsTheSameForAnyMeshPartsAndStart) {
  std::set<std::vector<int32_t>> seen;
  for (const uint64_t first : {uint64_t{0}, uint64_t{8}, uint64_t{43}, uint64_t{800'000'000'000}}) {
    const BatchBuffers expected = global_batch(1, 8, first, 42);
    for (const auto& [ranks, part] :
         std::initializer_list<std::pair<int, int>>{{1, 1}, {1, 4}, {2, 4}, {2, 2}, {4, 1}, {8, 1}})
      EXPECT_TRUE(same(global_batch(ranks, part, first, 42), expected))
          << ranks << " ranks, " << part;
    EXPECT_NE(global_batch(1, 8, first, 43).tokens, expected.tokens);
    EXPECT_TRUE(seen.insert(expected.tokens).second) << "sample " << first << " repeats a batch";
  }
}

// Each source is one data set, so that epochs are observable.
TEST_F(Batches, EverySequenceComesOnceAnEpochInANewOrder) {
  for (const bool shuffle : {true, false}) {
    const auto samples = open_samples(one_.path());
    const uint64_t n = samples->size();
    std::vector<WeightedSamples> sources;
    sources.push_back({open_samples(one_.path()), 1});
    const auto batches =
        BatchSource::endless(std::move(sources), {0, 1, 1, kLength, kFolderVocab}, 7, shuffle);
    std::multiset<std::vector<int32_t>> all;
    BatchBuffers numbers = numbers_for(1);
    const SequenceSpans spans{numbers.tokens, numbers.targets, numbers.starts, numbers.weights};
    for (uint64_t i = 0; i < n; ++i) {
      ASSERT_TRUE(samples->read(i, spans).ok());
      all.insert(numbers.tokens);
    }
    std::set<std::vector<std::vector<int32_t>>> orders;
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::vector<int32_t>> order;
      for (uint64_t i = 0; i < n; ++i) {
        ASSERT_TRUE(batches->fill(epoch * n + i, 0, spans).ok());
        order.push_back(numbers.tokens);
      }
      EXPECT_EQ(std::multiset<std::vector<int32_t>>(order.begin(), order.end()), all);
      orders.insert(order);
    }
    EXPECT_EQ(orders.size(), shuffle ? 3U : 1U);
  }
}

TEST_F(Batches, ABlendTakesEachSourceThroughItsEpochs) {
  const auto batches = source({0, 1, 1, kLength, kFolderVocab}, 3);
  const uint64_t n1 = open_samples(one_.path())->size(), n2 = open_samples(two_.path())->size();
  std::map<std::vector<int32_t>, int> of_one, of_two;
  BatchBuffers numbers = numbers_for(1);
  const SequenceSpans spans{numbers.tokens, numbers.targets, numbers.starts, numbers.weights};
  const auto one = open_samples(one_.path()), two = open_samples(two_.path());
  for (uint64_t i = 0; i < n1; ++i) {
    ASSERT_TRUE(one->read(i, spans).ok());
    of_one[numbers.tokens] = 0;
  }
  for (uint64_t i = 0; i < n2; ++i) {
    ASSERT_TRUE(two->read(i, spans).ok());
    ASSERT_FALSE(of_one.contains(numbers.tokens));
    of_two[numbers.tokens] = 0;
  }
  const uint64_t samples = 10 * n1 * n2;
  for (uint64_t i = 0; i < samples; ++i) {
    ASSERT_TRUE(batches->fill(i, 0, spans).ok());
    ++(of_one.contains(numbers.tokens) ? of_one : of_two).at(numbers.tokens);
  }
  for (const auto& [tokens, count] : of_one) EXPECT_EQ(count, 7 * static_cast<int>(n2));
  for (const auto& [tokens, count] : of_two) EXPECT_EQ(count, 3 * static_cast<int>(n1));
}

TEST_F(Batches, AnEvaluationReadsEachSequenceOnceAndThenBlanks) {
  const uint64_t n1 = open_samples(one_.path())->size(), n2 = open_samples(two_.path())->size();
  for (const int32_t ranks : {1, 3}) {
    std::multiset<std::vector<int32_t>> read;
    int blanks = 0;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      std::vector<std::unique_ptr<Samples>> sources;
      sources.push_back(open_samples(one_.path()));
      sources.push_back(open_samples(two_.path()));
      // 5 sequences per rank, in spans of 2: the last one is padding.
      const auto once =
          BatchSource::once(std::move(sources), {rank, ranks, 5, kLength, kFolderVocab});
      for (uint64_t first = 0; first < n1 + n2; first += 5 * static_cast<uint64_t>(ranks)) {
        for (const int32_t skipped : {0, 2, 4}) {
          BatchBuffers numbers = numbers_for(2);
          const SequenceSpans spans{numbers.tokens, numbers.targets, numbers.starts,
                                    numbers.weights};
          ASSERT_TRUE(once->fill(first, skipped, spans).ok());
          for (size_t k = 0; k < 2; ++k) {
            const SequenceSpans one = spans.sequence(k, kLength);
            const bool blank = std::ranges::all_of(one.weights, [](float w) { return w == 0; });
            if (blank) {
              ++blanks;
            } else {
              read.insert({one.tokens.begin(), one.tokens.end()});
            }
          }
        }
      }
    }
    EXPECT_EQ(read.size(), n1 + n2) << ranks << " ranks";
    EXPECT_GT(blanks, 0);
  }
}

TEST_F(Batches, SyntheticIsOneFixedBatchOnAnyMesh) {
  const auto fill = [](const BatchGeometry& geometry, uint64_t first, int32_t skipped = 0) {
    BatchBuffers numbers = numbers_for(geometry.per_device - skipped);
    EXPECT_TRUE(BatchSource::synthetic(geometry)
                    ->fill(first, skipped, {numbers.tokens, numbers.targets, {}, numbers.weights})
                    .ok());
    for (size_t i = 0; i < numbers.tokens.size(); ++i) {
      EXPECT_LT(numbers.tokens[i], geometry.vocab_size);
      EXPECT_GE(numbers.tokens[i], 0);
      if (i % static_cast<size_t>(geometry.seq_len) == 0) continue;
      EXPECT_EQ(numbers.targets[i - 1], numbers.tokens[i]);
    }
    return numbers.tokens;
  };
  const auto whole = fill({0, 1, 4, kLength, 50}, 0);
  EXPECT_EQ(fill({0, 1, 4, kLength, 50}, 9), whole);
  const auto second = fill({1, 2, 2, kLength, 50}, 3);
  EXPECT_EQ(second, std::vector<int32_t>(whole.begin() + 2 * kLength, whole.end()));
  EXPECT_EQ(fill({0, 1, 4, kLength, 50}, 0, 3),
            std::vector<int32_t>(whole.begin() + 3 * kLength, whole.end()));
}

}  // namespace
}  // namespace muster::trainer
