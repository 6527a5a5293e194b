// Requests of the base and of several adapters in one batch: the results of each are those of the
// model with that adapter merged, and of PEFT.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/unit/trainer_core/generation/random_adapter.h"
#include "tests/unit/trainer_core/generation/test_engine.h"
#include "tests/unit/trainer_core/golden_file.h"
#include "tests/unit/trainer_core/hugging_face_goldens.h"
#include "tests/unit/trainer_core/large_shapes.h"
#include "tests/unit/trainer_core/model/transformer_fixture.h"
#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

// Returns the parameters W + scale B A of the model without adapters.
std::vector<float> merged(const TestAdapter& adapter, std::span<const float> base) {
  std::vector<float> values(base.begin(), base.end());
  const auto find = [&](const std::string& name) {
    const auto found =
        std::ranges::find(adapter.table, name, [](const ParamSpec& spec) { return spec.name; });
    return found == adapter.table.end() ? nullptr : adapter.values.data() + found->offset;
  };
  const int64_t rank = adapter.model.lora.rank;
  for (const ParamSpec& spec : model_params(base_of(adapter.model))) {
    const std::string module = spec.name.substr(0, spec.name.rfind(".weight"));
    const float *const a = find(module + ".lora_A.weight"), *const b =
                                                                find(module + ".lora_B.weight");
    if (a == nullptr) continue;
    for (int64_t i = 0; i < spec.shape[0]; ++i) {
      for (int64_t j = 0; j < spec.shape[1]; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < rank; ++k)
          sum += double{b[i * rank + k]} * a[k * spec.shape[1] + j];
        values[static_cast<size_t>(spec.offset + i * spec.shape[1] + j)] +=
            static_cast<float>(adapter.model.lora.scale() * sum);
      }
    }
  }
  return values;
}

class ServedAdapters : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, ServedAdapters, testing::Values(DType::kF32, DType::kBf16));

// Prompts enter at different steps, and most take several steps.
TEST_P(ServedAdapters, EachRequestHasTheResultsOfItsMergedModel) {
  const double band = GetParam() == DType::kF32 ? 3e-5 : 0.08;
  for (ModelConfig model : {small_config(4, 2, false), small_gpt(), small_mixture_of_choices(),
                            small_parallel(), dropless(small_mixtral())}) {
    constexpr int32_t kContext = 40;
    if (model.learns_positions()) model.trainable_position_size = kContext;
    TestModel whole(model, 1, kContext, RematPolicy::kNone, 1, true, GetParam());
    randomize_params(whole.plan, whole.model.params());
    const std::vector<float> base(whole.model.params().begin(), whole.model.params().end());
    const std::vector<TestAdapter> adapters = {
        random_adapter(
            model, {.rank = 3, .alpha = 4.5, .targets = lora_targets(model, LoraLayers::kAll)}, 1),
        random_adapter(model, {.rank = 2, .alpha = 1, .targets = {"k_proj", "o_proj"}}, 2)};
    TestEngine test(model, base,
                    {.context = kContext, .sequences_max = 4, .step_rows = 9, .threads = 2},
                    GetParam(), adapters);
    std::map<RequestId, GenerationRequest> requests;
    for (const auto& [length, adapter] :
         {std::pair(20, 1), {6, -1}, {31, 0}, {2, 1}, {12, 0}, {5, -1}}) {
      GenerationRequest request{
          .prompt = some_prompt(static_cast<size_t>(length), static_cast<uint64_t>(length),
                                model.vocab_size),
          .max_tokens = 9,
          .top_logprobs = 1,
          .prompt_logprobs = true,
          .adapter = adapter};
      requests[test.submit(request)] = request;
      test.step();
    }
    test.run();
    double change = 0;  // by the adapters
    for (const auto& [id, request] : requests) {
      const std::vector<float> params =
          request.adapter < 0 ? base : merged(adapters[static_cast<size_t>(request.adapter)], base);
      const Result& result = test.results[id];
      std::vector<int32_t> tokens = request.prompt;
      tokens.insert(tokens.end(), result.output.begin(), result.output.end());
      ASSERT_EQ(result.output.size(), 9U);
      const size_t length = tokens.size();
      tokens.resize(kContext, 0);
      const auto vocab = static_cast<size_t>(model.vocab_size);
      std::vector<float> logits(kContext * vocab), plain(kContext * vocab);
      std::ranges::copy(base, whole.model.params().begin());
      whole.model.all_logits(tokens, plain.data());
      std::ranges::copy(params, whole.model.params().begin());
      whole.model.all_logits(tokens, logits.data());
      for (size_t i = 1; i < length; ++i) {
        const auto at = [&](const std::vector<float>& from) {
          return position_logprobs(std::span(from).subspan((i - 1) * vocab, vocab), tokens[i], 1,
                                   model.vocab_size);
        };
        const size_t prompt = request.prompt.size();
        const PositionLogprobs& actual =
            i < prompt ? result.prompt[i - 1] : result.logprobs[i - prompt];
        EXPECT_NEAR(actual.chosen.logprob, at(logits).chosen.logprob, band)
            << "position " << i << ", adapter " << request.adapter;
        EXPECT_NEAR(actual.top[0].logprob, at(logits).top[0].logprob, band);
        if (request.adapter >= 0)
          change =
              std::max(change, std::abs(double{at(plain).chosen.logprob} - actual.chosen.logprob));
      }
    }
    EXPECT_GT(change, 0.3);
  }
}

// A prompt has more rows than a GEMM of an adapter (kAdapterRows; not on a slow device), the order
// of the requests is not that of the adapters, and the cache has room for one sequence, so that
// requests are preempted.
TEST(ServedAdaptersTogether, EachRequestHasTheResultsOfItsMergedModel) {
  const int32_t longest = large_shapes() ? 1200 : 70;
  const int32_t context = longest + 60;
  const ModelConfig model = small_config(4, 2, false);
  TestModel whole(model, 1, 8);
  randomize_params(whole.plan, whole.model.params());
  const std::span<const float> base = whole.model.params();
  const std::vector<std::string> all = lora_targets(model, LoraLayers::kAll);
  const std::vector<TestAdapter> adapters = {
      random_adapter(model, {.rank = 3, .alpha = 4.5, .targets = all}, 1),
      random_adapter(model, {.rank = 2, .alpha = 2, .targets = {"k_proj", "o_proj"}}, 2),
      random_adapter(model, {.rank = 1, .alpha = 1, .targets = all}, 3)};
  for (const bool is_int8 : {false, true}) {
    const int64_t element = is_int8 ? 1 : sizeof(float), scale = is_int8 ? sizeof(float) : 0;
    const int64_t row_bytes =
        int64_t{2} * model.num_layers * model.num_kv_heads * (model.head_dim * element + scale);
    const int64_t blocks = (context + CacheSize::kBlockPositions - 1) / CacheSize::kBlockPositions;
    TestEngine together(model, base,
                        {.context = context,
                         .sequences_max = 4,
                         .step_rows = context,
                         .cache_bytes = blocks * CacheSize::kBlockPositions * row_bytes,
                         .int8_cache = is_int8,
                         .threads = 2},
                        DType::kF32, adapters);
    std::map<RequestId, GenerationRequest> requests;
    for (const auto& [length, adapter] :
         {std::pair(longest, 2), {33, 1}, {21, 0}, {9, -1}, {7, 2}}) {
      const GenerationRequest request{
          .prompt = some_prompt(static_cast<size_t>(length), static_cast<uint64_t>(length),
                                model.vocab_size),
          .max_tokens = 40,
          .top_logprobs = 0,
          .prompt_logprobs = true,
          .adapter = adapter};
      requests[together.submit(request)] = request;
    }
    together.run();
    EXPECT_GT(together.engine.stats().preemptions, 0U);
    for (auto& [id, request] : requests) {
      const std::vector<float> params =
          request.adapter < 0 ? std::vector<float>(base.begin(), base.end())
                              : merged(adapters[static_cast<size_t>(request.adapter)], base);
      TestEngine alone(
          model, params,
          {.context = context, .sequences_max = 1, .step_rows = 64, .int8_cache = is_int8});
      request.adapter = -1;
      const RequestId same = alone.submit(request);
      alone.run();
      const Result &actual = together.results[id], &expected = alone.results[same];
      ASSERT_EQ(actual.prompt.size(), request.prompt.size() - 1);
      for (size_t i = 0; i < actual.prompt.size(); ++i) {
        // A key that is almost between two values of int8 may be rounded to either.
        ASSERT_NEAR(actual.prompt[i].chosen.logprob, expected.prompt[i].chosen.logprob,
                    is_int8 ? 0.1 : 1e-4)
            << "position " << i << " of " << request.prompt.size();
      }
      if (!is_int8) {
        EXPECT_EQ(actual.output, expected.output);
      }
    }
  }
}

class PeftGolden : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Folders, PeftGolden,
                         testing::Values("llama_gqa", "llama_bias_tied", "mixtral"));

// The fixtures of tests/golden/make_lora.py.
TEST_P(PeftGolden, LogprobsAreThoseOfPeft) {
  const std::string base_folder = hugging_face_golden(GetParam());
  const auto base = ParameterSource::open(base_folder);
  ASSERT_TRUE(base.ok()) << base.status();
  const ModelConfig model = (*base)->description().model;
  const std::vector<AdapterFolder> folders = {
      {"golden", source_dir() + "/tests/golden/lora/" + GetParam()}};
  const auto opened = open_served_adapters(folders, base_folder, model);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto golden = read_served_adapter(opened->front(), model);
  ASSERT_TRUE(golden.ok()) << golden.status();
  const std::vector<TestAdapter> adapters = {
      random_adapter(model, {.rank = 2, .alpha = 2, .targets = {"v_proj"}}, 3),
      {.model = golden->model, .table = golden->table, .values = golden->values}};
  std::vector<float> params(static_cast<size_t>((*base)->parameters()));
  ASSERT_TRUE(load_parameters(**base, params).ok());
  TestEngine test(model, params, {.context = 32, .sequences_max = 8, .step_rows = 24, .threads = 2},
                  DType::kF32, adapters);
  const auto sequences = nlohmann::json::parse(std::ifstream(base_folder + "/tokens.json"));
  std::vector<RequestId> ids;
  for (const auto& sequence : sequences) {
    for (const int32_t adapter : {1, 0, -1}) {
      const RequestId id = test.submit({.prompt = sequence.get<std::vector<int32_t>>(),
                                        .max_tokens = 0,
                                        .top_logprobs = 0,
                                        .prompt_logprobs = true,
                                        .adapter = adapter});
      if (adapter == 1) ids.push_back(id);
    }
  }
  test.run();
  const std::vector<float> logits =
      GoldenFile(std::string("lora/") + GetParam() + "/step.safetensors").tensor<float>("logits");
  const auto vocab = static_cast<size_t>(model.vocab_size);
  for (size_t s = 0; s < ids.size(); ++s) {
    const auto tokens = sequences[s].get<std::vector<int32_t>>();
    for (size_t i = 1; i < tokens.size(); ++i) {
      const auto expected =
          position_logprobs(std::span(logits).subspan((s * tokens.size() + i - 1) * vocab, vocab),
                            tokens[i], 0, model.vocab_size);
      EXPECT_NEAR(test.results[ids[s]].prompt[i - 1].chosen.logprob, expected.chosen.logprob, 2e-5)
          << i;
    }
  }
}

TEST(ParseAdapters, RefusesNamesThatRequestsCannotUse) {
  const auto refused = [](std::vector<std::string> words) {
    return std::string(parse_adapters(words, "base").status().message());
  };
  EXPECT_THAT(refused({"folder"}), HasSubstr("--adapter folder: it must be NAME=DIR"));
  EXPECT_THAT(refused({"a/b=folder"}), HasSubstr("a name of at most 64 letters"));
  EXPECT_THAT(refused({"..=folder"}), HasSubstr("must be NAME=DIR"));
  EXPECT_THAT(refused({"a="}), HasSubstr("must be NAME=DIR"));
  EXPECT_THAT(refused({"base=folder"}), HasSubstr("base is the name of the base"));
  EXPECT_THAT(refused({"a=x", "b=y", "a=z"}), HasSubstr("there are two adapters with the name a"));
  EXPECT_THAT(refused(std::vector<std::string>(65, "a=x")),
              HasSubstr("--adapter is given 65 times; at most 64"));
  const auto parsed = parse_adapters(std::vector<std::string>{"v1.2=s3://b/c=d"}, "base");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->front().folder, "s3://b/c=d");
}

}  // namespace
}  // namespace muster::trainer
