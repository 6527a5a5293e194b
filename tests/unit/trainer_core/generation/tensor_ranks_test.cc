// Generation on several ranks: the results are those of one rank.
#include "trainer_core/generation/tensor_ranks.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <new>
#include <ostream>
#include <thread>

#include "tests/unit/trainer_core/generation/random_adapter.h"
#include "tests/unit/trainer_core/generation/test_engine.h"
#include "tests/unit/trainer_core/model/transformer_fixture.h"
#include "trainer_core/comm/local.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

// The ranks are threads of the test.
class Ranks {
 public:
  using Make = std::function<std::unique_ptr<Decoder>(std::unique_ptr<TensorRanks>)>;

  Ranks(int size, Make make) : world_(size, std::chrono::seconds(60)), make_(std::move(make)) {
    for (int rank = 1; rank < size; ++rank) {
      threads_.emplace_back([this, rank] {
        const auto decoder = make_(std::make_unique<TensorRanks>(world_.join(rank)));
        EXPECT_TRUE(decoder->follow().ok());
      });
    }
    first_ = std::make_unique<TensorRanks>(world_.join(0));
  }
  // Rank 0 must have left.
  ~Ranks() {
    first_.reset();
    for (std::thread& thread : threads_) thread.join();
  }
  std::unique_ptr<TensorRanks> first() { return std::move(first_); }

 private:
  LocalWorld world_;
  Make make_;
  std::unique_ptr<TensorRanks> first_;
  std::vector<std::thread> threads_;
};

struct Case {
  const char* name;
  ModelConfig model;
  int ranks = 2;
  DType dtype = DType::kF32;
  bool int8_cache = false;

  friend std::ostream& operator<<(std::ostream& out, const Case& test) { return out << test.name; }
};

class TensorRanksGenerate : public testing::TestWithParam<Case> {};

TEST_P(TensorRanksGenerate, TheResultsOfOneRank) {
  const Case& test = GetParam();
  ModelConfig model = test.model;
  constexpr int32_t kContext = 40;
  if (model.learns_positions()) model.trainable_position_size = kContext;
  TestModel whole(model, 1, kContext);
  randomize_params(whole.plan, whole.model.params());
  // Scales that differ show whether each rank has those of its matrices.
  const std::span<float> scaling = whole.model.state().subspan(whole.model.params().size());
  for (size_t i = 0; i < scaling.size(); ++i)
    scaling[i] = 0.5F + 0.125F * static_cast<float>(i % 7);
  const std::vector<TestAdapter> adapters = {
      random_adapter(
          model, {.rank = 3, .alpha = 4.5, .targets = lora_targets(model, LoraLayers::kAll)}, 1),
      random_adapter(model, {.rank = 2, .alpha = 1, .targets = {"k_proj", "o_proj"}}, 2)};
  DecoderSize size{
      .context = kContext, .sequences_max = 4, .step_rows = 9, .int8_cache = test.int8_cache};
  std::vector<GenerationRequest> requests;
  for (const auto& [length, adapter] : {std::pair(20, 1), {6, -1}, {31, 0}, {1, -1}, {12, 0}}) {
    requests.push_back({.prompt = some_prompt(static_cast<size_t>(length),
                                              static_cast<uint64_t>(length), model.vocab_size),
                        .max_tokens = 9,
                        .sampling = {.temperature = adapter == 0 ? 0.0 : 1.3, .seed = 5},
                        .top_logprobs = 3,
                        .prompt_logprobs = true,
                        .adapter = adapter});
  }
  const auto run = [&](TestEngine& engine) {
    std::vector<Result> results;
    std::vector<RequestId> ids;
    for (const GenerationRequest& request : requests) {
      ids.push_back(engine.submit(request));
      engine.step();
    }
    engine.run();
    for (const RequestId id : ids) results.push_back(engine.results[id]);
    return results;
  };
  TestEngine alone(model, whole.model.state(), size, test.dtype, adapters);
  const std::vector<Result> expected = run(alone);
  size.tensor_ranks = test.ranks;
  std::vector<Result> actual;
  {
    const auto make = [&](std::unique_ptr<TensorRanks> own) {
      return make_decoder(model, whole.model.state(), size, test.dtype, adapters, std::move(own));
    };
    Ranks ranks(test.ranks, make);
    TestEngine together(model, whole.model.state(), size, test.dtype, adapters, ranks.first());
    actual = run(together);
    // The cache has as many positions, of which each rank has its heads.
    EXPECT_EQ(together.engine.stats().blocks, alone.engine.stats().blocks);
  }
  const double band = test.dtype == DType::kF32 ? (test.int8_cache ? 1e-3 : 3e-5) : 0.08;
  for (size_t i = 0; i < requests.size(); ++i) {
    // Rounding in bf16 may choose another token.
    if (test.dtype == DType::kF32) {
      EXPECT_EQ(actual[i].output, expected[i].output) << i;
    }
    ASSERT_EQ(actual[i].prompt.size(), expected[i].prompt.size());
    for (size_t k = 0; k < actual[i].prompt.size(); ++k)
      EXPECT_NEAR(actual[i].prompt[k].chosen.logprob, expected[i].prompt[k].chosen.logprob, band);
    if (test.dtype != DType::kF32) continue;
    for (size_t k = 0; k < actual[i].logprobs.size(); ++k) {
      EXPECT_NEAR(actual[i].logprobs[k].chosen.logprob, expected[i].logprobs[k].chosen.logprob,
                  band);
      EXPECT_NEAR(actual[i].logprobs[k].top[2].logprob, expected[i].logprobs[k].top[2].logprob,
                  band);
    }
  }
}

ModelConfig gpt_of_four_heads() {
  ModelConfig model = small_gpt();
  model.num_query_heads = model.num_kv_heads = 4;
  return model;
}

ModelConfig quantized(ModelConfig model, QuantizationType type) {
  model.quantization.type = type;
  model.quantization.amax_history_length = 4;
  return model;
}

// 19 ids and 10 columns of the MLP are divided unevenly; on 4 ranks two of them share a KV head.
INSTANTIATE_TEST_SUITE_P(
    Models, TensorRanksGenerate,
    testing::Values(
        Case{"grouped2", small_config(4, 2, false)}, Case{"grouped4", small_config(4, 2, false), 4},
        Case{"one_kv_head", small_gemma(), 4}, Case{"tied", small_config(4, 4, true), 4},
        Case{"gpt", gpt_of_four_heads(), 4}, Case{"interleaved", small_mixture_of_choices(), 2},
        Case{"parallel", small_parallel(), 4}, Case{"experts", dropless(small_mixtral()), 2},
        Case{"relative", small_dense_glam(), 2},
        Case{"bf16", small_config(4, 2, false), 4, DType::kBf16},
        Case{"int8", quantized(small_config(4, 2, false), QuantizationType::kInt8)},
        Case{"fp8_current", quantized(small_config(4, 2, false), QuantizationType::kFp8Current), 4},
        Case{"fp8_delayed", quantized(small_config(4, 2, false), QuantizationType::kFp8Delayed), 4},
        Case{"int8_cache", small_config(4, 2, false), 2, DType::kF32, true}),
    [](const auto& instance) { return instance.param.name; });

TEST(TensorRanks, ALostRankIsAnError) {
  const ModelConfig model = small_config(4, 2, false);
  TestModel whole(model, 1, 8);
  const DecoderSize size{.context = 20, .sequences_max = 2, .step_rows = 8, .tensor_ranks = 2};
  const LocalWorld world(2, std::chrono::seconds(60));
  std::thread lost([&] { const TensorRanks rank(world.join(1)); });
  TestEngine test(model, whole.model.params(), size, DType::kF32, {},
                  std::make_unique<TensorRanks>(world.join(0)));
  lost.join();
  test.submit({.prompt = {1, 2, 3}});
  for (int i = 0; i < 2; ++i) {
    const auto events = test.engine.step();
    EXPECT_TRUE(absl::IsUnavailable(events.status())) << events.status();
    EXPECT_THAT(std::string(events.status().message()), HasSubstr("rank 1"));
  }
}

// Rank 2 has joined and computes nothing, as a stopped process.
TEST(TensorRanks, ARankThatDoesNotRespondIsAnError) {
  const ModelConfig model = small_config(12, 3, false);
  TestModel whole(model, 1, 8);
  const DecoderSize size{.context = 20, .sequences_max = 2, .step_rows = 8, .tensor_ranks = 3};
  const LocalWorld world(3, std::chrono::hours(1));
  const auto silent = world.join(2);
  std::thread follower([&] {
    const auto decoder = make_decoder(model, whole.model.params(), size, DType::kF32, {},
                                      std::make_unique<TensorRanks>(world.join(1)));
    const auto status = decoder->follow();
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  });
  auto first = std::make_unique<TensorRanks>(world.join(0));
  first->limit_exchanges(std::chrono::milliseconds(500));
  TestEngine test(model, whole.model.params(), size, DType::kF32, {}, std::move(first));
  test.submit({.prompt = {1, 2, 3}});
  const auto status = test.engine.step().status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2"));
  follower.join();
}

// Runs four ranks as processes, of which each calls `follow`, and exits with the error of rank 0.
void run_processes(const std::function<absl::Status(TensorRanks&)>& follow) {
  const auto ranks =
      TensorRanks::start(4, [&](std::unique_ptr<TensorRanks> own) { return follow(*own); });
  absl::Status status = ranks.status();
  if (status.ok()) status = (*ranks)->agree(absl::OkStatus());
  std::vector<float> sum(8);
  while (status.ok()) {
    status = (*ranks)->group().all_reduce(std::span(sum), "sum");
    if (!status.ok()) status = (*ranks)->cause_of(status);
  }
  std::cerr << status << std::endl;
  std::exit(0);
}

// Returns the error of sums that all ranks compute until one is lost.
absl::Status sum_until_lost(TensorRanks& ranks) {
  std::vector<float> sum(8);
  absl::Status status = ranks.agree(absl::OkStatus());
  while (status.ok()) status = ranks.group().all_reduce(std::span(sum), "sum");
  return status;
}

// The others end as well, because they lose the rank.
TEST(TensorRanksDeathTest, TheRankThatEndedFirstIsNamed) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "this sanitizer has a thread of its own";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  using testing::ExitedWithCode;
  EXPECT_EXIT(run_processes([](TensorRanks& ranks) {
                if (ranks.rank() != 3) return sum_until_lost(ranks);
                (void)ranks.agree(absl::OkStatus());
                raise(SIGKILL);
                return absl::OkStatus();
              }),
              ExitedWithCode(0), "UNAVAILABLE: rank 3 of the model .* was ended by signal 9");
  // An error keeps its code, so that a damaged file is not taken for a lost rank.
  EXPECT_EXIT(run_processes([](TensorRanks& ranks) {
                return ranks.rank() == 2 ? ranks.agree(absl::DataLossError("a damaged file"))
                                         : sum_until_lost(ranks);
              }),
              ExitedWithCode(0), "DATA_LOSS: rank 2: a damaged file");
  EXPECT_EXIT(run_processes([](TensorRanks& ranks) -> absl::Status {
                if (ranks.rank() == 1) throw std::bad_alloc();
                return sum_until_lost(ranks);
              }),
              ExitedWithCode(0), "RESOURCE_EXHAUSTED: rank 1: the machine has too little memory");
}

TEST(TensorRanks, RefuseModelsThatTheyCannotDivide) {
  const auto refused = [](const ModelConfig& model, int32_t ranks) {
    return std::string(check_tensor_ranks(model, ranks).message());
  };
  EXPECT_EQ(refused(small_config(4, 2, false), 4), "");
  EXPECT_THAT(refused(small_config(4, 2, false), 3), HasSubstr("num_query_heads"));
  EXPECT_THAT(refused(small_config(12, 3, false), 2), HasSubstr("num_kv_heads"));
}

}  // namespace
}  // namespace muster::trainer
