#include "trainer_core/input/position_source.h"

#include <vector>

#include <gtest/gtest.h>

#include "trainer_core/model/token_layout.h"

namespace muster::trainer {
namespace {

constexpr int32_t kLength = 24, kSequences = 3;

// Values that identify their position.
int32_t number_at(uint64_t first, int64_t sequence, int64_t position, int32_t kind) {
  return static_cast<int32_t>(((static_cast<int64_t>(first) + sequence) * kLength + position) * 4) +
         kind;
}

class Numbered : public BatchSource {
 public:
  absl::Status fill(uint64_t first, int32_t skipped, const SequenceSpans& out) override {
    if (first == 99) return absl::UnavailableError("no such sample");
    for (size_t i = 0; i < out.tokens.size(); ++i) {
      const auto at = [&](int32_t kind) {
        return number_at(first, skipped + static_cast<int64_t>(i) / kLength,
                         static_cast<int64_t>(i) % kLength, kind);
      };
      out.tokens[i] = at(0);
      out.targets[i] = at(1);
      if (!out.starts.empty()) out.starts[i] = at(2);
      out.weights[i] = static_cast<float>(at(3));
    }
    return absl::OkStatus();
  }
};

TEST(PositionSource, CopiesTheRanksPositionsOfEachSequence) {
  for (int sequence = 0; sequence < 2; ++sequence) {
    for (int context = 0; context < 3; ++context) {
      const Positions of_context = context_positions(kLength, {context, 3});
      const Positions own = sequence_positions(of_context, {sequence, 2});
      const auto source = positions_of(std::make_unique<Numbered>(), kLength, {own, of_context});
      for (const bool packed : {false, true}) {
        const auto tokens = static_cast<size_t>(kSequences * own.count());
        const auto starts = packed ? static_cast<size_t>(kSequences * of_context.count()) : 0;
        std::vector<int32_t> token(tokens), target(tokens), start(starts);
        std::vector<float> weight(tokens);
        ASSERT_TRUE(source->fill(7, 2, {token, target, start, weight}).ok());
        for (size_t i = 0; i < tokens; ++i) {
          const auto row = static_cast<int64_t>(i);
          const auto at = [&](int32_t kind) {
            return number_at(7, 2 + row / own.count(), own.at(row % own.count()), kind);
          };
          ASSERT_EQ(token[i], at(0));
          ASSERT_EQ(target[i], at(1));
          ASSERT_EQ(weight[i], static_cast<float>(at(3)));
        }
        for (size_t i = 0; i < starts; ++i) {
          const auto row = static_cast<int64_t>(i), each = of_context.count();
          ASSERT_EQ(start[i], number_at(7, 2 + row / each, of_context.at(row % each), 2));
        }
      }
    }
  }
}

TEST(PositionSource, PropagatesErrors) {
  const Positions own = context_positions(kLength, {0, 2});
  const auto source = positions_of(std::make_unique<Numbered>(), kLength, {own, own});
  std::vector<int32_t> numbers(static_cast<size_t>(own.count()));
  std::vector<float> weights(numbers.size());
  EXPECT_EQ(source->fill(99, 0, {numbers, numbers, {}, weights}).message(), "no such sample");
}

}  // namespace
}  // namespace muster::trainer
