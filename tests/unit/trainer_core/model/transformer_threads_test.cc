#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/model/transformer_fixture.h"
#include "trainer_core/model/transformer.h"

namespace muster::trainer {
namespace {

TEST(TransformerThreads, SeveralModelsInThreadsOfOneProcess) {
  const ModelConfig config = small_config(2, 1, false);
  const TestBatch data(config.vocab_size, 20);
  std::vector<double> losses(3);
  std::vector<std::thread> threads;
  for (double& loss : losses) {
    threads.emplace_back([&loss, &config, &data] {
      TestModel test(config, 2, 10, RematPolicy::kFull, 2);
      randomize_params(test.plan, test.model.params());
      for (int i = 0; i < 5; ++i) loss = test.model.forward_backward(data.view()).loss;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
}

}  // namespace
}  // namespace muster::trainer
