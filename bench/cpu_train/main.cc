// The side of bench/cpu_train.py that runs our code: optimizer steps on request.
//
//   cpu_train S|M THREADS [REMAT_POLICY|none] [bfloat16|float32] [QUANTIZATION|none]
//
// Prints {"ready": true, "gemm_peak_tflops": x, "plan_bytes": n} when warm. Then, for each line on
// stdin:
//   steps N     runs N steps and prints {"seconds": [one per step], "loss": mean loss of the last}
//   profile N   runs N steps with a timer around every op and prints
//               {"seconds": …, "ops": [per step]}
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/random/philox.h"
#include "common/time/time.h"
#include "trainer_core/forecast/op_timer.h"
#include "trainer_core/model/plan_builder.h"
#include "trainer_core/model/transformer.h"
#include "trainer_core/ops/gemm_peak.h"
#include "trainer_core/optim/optimizer.h"

namespace muster::trainer {
namespace {

using Json = nlohmann::json;

struct Size {
  ModelConfig model;
  int32_t batch;
  int32_t seq_len;
};

// layers, width, heads, mlp, vocabulary, sequence, batch
Size make_size(int32_t layers, int32_t width, int32_t heads, int32_t mlp, int32_t vocab,
               int32_t seq_len, int32_t batch) {
  Size size{.model = {}, .batch = batch, .seq_len = seq_len};
  size.model.num_layers = layers;
  size.model.emb_dim = width;
  size.model.num_query_heads = heads;
  size.model.num_kv_heads = heads;
  size.model.head_dim = width / heads;
  size.model.mlp_dim = mlp;
  size.model.vocab_size = vocab;
  return size;
}

class Trainer {
 public:
  Trainer(const Size& size, int32_t threads, RematPolicy policy, DType dtype)
      : size_(size),
        plan_(build_transformer_plan(size.model, size.batch, size.seq_len, dtype,
                                     layer_placements(policy), true, threads)),
        arena_(plan_.memory),
        cpu_(cpu_ops(threads)),
        timed_(*cpu_),
        plain_model_(plan_, arena_, *cpu_),
        timed_model_(plan_, arena_, timed_) {
    optimizer_ = Optimizer::make(OptimizerConfig{}, ShardLayout::whole(plan_.params));
    state_.resize(static_cast<size_t>(optimizer_->state_elements()));
    init_params(plan_.params, 0, plain_model_.params().data());
    const auto vocab = static_cast<uint32_t>(size.model.vocab_size);
    const Philox philox{.key = 1, .stream = 0};
    for (int64_t i = 0; i < int64_t{size.batch} * size.seq_len; ++i) {
      const Philox::Block words = philox(static_cast<uint64_t>(i));
      tokens_.push_back(static_cast<int32_t>(words[0] % vocab));
      targets_.push_back(static_cast<int32_t>(words[1] % vocab));
      weights_.push_back(1);
    }
  }

  size_t plan_bytes() const { return arena_.bytes(); }
  double gemm_peak_tflops() { return measure_gemm_peak_tflops(*cpu_, plan_.dtype); }

  Json run(int64_t steps, bool profile) {
    timed_.take();
    Json seconds = Json::array();
    double loss = 0;
    for (int64_t i = 0; i < steps; ++i) {
      const Instant start = monotonic_now();
      loss = profile ? step(timed_model_, timed_) : step(plain_model_, *cpu_);
      seconds.push_back(to_seconds(monotonic_now() - start));
    }
    Json result{{"seconds", seconds}, {"loss", loss}};
    if (profile) result["ops"] = op_table(steps);
    return result;
  }

 private:
  // Runs forward, backward, clipping by the global norm, and AdamW. Returns the mean loss.
  double step(Transformer& model, Ops& ops) {
    const LossSum loss = model.forward_backward({tokens_, targets_, weights_});
    const size_t n = model.params().size();
    const Tensor grads = Tensor::f32(model.grads().data(), {static_cast<int64_t>(n)});
    const double norm = std::sqrt(ops.sum_of_squares(grads)) / loss.weight;
    const UpdateStep update{1e-4, clip_factor(norm, 1.0) / loss.weight, ++update_};
    MUSTER_CHECK(optimizer_->update(ops, update, {model.params(), model.grads(), state_}).ok());
    model.advance_scaling();
    return loss.loss / loss.weight;
  }

  // Returns the operation of a call; GEMMs of different shapes differ.
  static std::string op_of(const TimedCall& call) {
    if (call.k == 0) return call.name;
    const auto letter = [](Transpose transpose) {
      return transpose == Transpose::kYes ? "T" : "N";
    };
    return absl::StrCat(call.name, " ", call.m, "x", call.n, "x", call.k, " ",
                        letter(call.transpose_a), letter(call.transpose_b),
                        call.accumulates ? "+" : "");
  }

  Json op_table(int64_t steps) {
    struct OpTime {
      double seconds = 0;
      double flops = 0;  // counted for GEMMs only
      int64_t calls = 0;
    };
    std::map<std::string, OpTime> times;
    for (const TimedCall& call : timed_.take()) {
      OpTime& time = times[op_of(call)];
      time.seconds += call.seconds;
      time.flops += 2.0 * static_cast<double>(call.m) * static_cast<double>(call.n) *
                    static_cast<double>(call.k);
      ++time.calls;
    }
    Json table = Json::array();
    for (const auto& [op, time] : times) {
      Json row{{"op", op},
               {"ms", time.seconds * 1e3 / static_cast<double>(steps)},
               {"calls", time.calls / steps}};
      if (time.flops > 0) row["gflops_per_second"] = time.flops / time.seconds * 1e-9;
      table.push_back(row);
    }
    return table;
  }

  Size size_;
  TransformerPlan plan_;
  Arena arena_;
  std::unique_ptr<Ops> cpu_;
  OpTimer timed_;
  Transformer plain_model_;
  Transformer timed_model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> state_;
  std::vector<int32_t> tokens_, targets_;
  std::vector<float> weights_;
  int64_t update_ = 0;
};

int serve(const std::string& name, int threads, RematPolicy policy, DType dtype,
          QuantizationType quantization) {
  Size size = name == "S" ? make_size(4, 256, 4, 688, 4096, 256, 8)
                          : make_size(8, 512, 8, 1376, 8192, 512, 4);
  size.model.quantization.type = quantization;
  Trainer trainer(size, threads, policy, dtype);
  trainer.run(2, false);
  std::cout << Json{{"ready", true},
                    {"gemm_peak_tflops", trainer.gemm_peak_tflops()},
                    {"plan_bytes", trainer.plan_bytes()}}
            << std::endl;
  std::string command;
  int64_t steps = 0;
  while (std::cin >> command >> steps)
    std::cout << trainer.run(steps, command == "profile") << std::endl;
  return 0;
}

}  // namespace
}  // namespace muster::trainer

int main(int argc, char** argv) {
  const std::string size = argc > 1 ? argv[1] : "";
  const int threads = argc > 2 ? std::atoi(argv[2]) : 0;
  const std::string policy = argc > 3 ? argv[3] : "none";
  const std::string type = argc > 4 ? argv[4] : "float32";
  const auto& policies = muster::trainer::kRematPolicyNames;
  const auto* const found = std::ranges::find(policies, policy);
  const auto quantization = muster::trainer::value_named<muster::trainer::QuantizationType>(
      muster::trainer::kQuantizationNames, argc > 5 ? argv[5] : "");
  if ((size != "S" && size != "M") || threads < 1 || found == policies.end() ||
      (type != "float32" && type != "bfloat16") || !quantization) {
    std::cerr << "usage: cpu_train S|M THREADS [REMAT_POLICY] [float32|bfloat16] [QUANTIZATION]"
              << std::endl;
    return 2;
  }
  const auto index = static_cast<size_t>(found - policies.begin());
  return muster::trainer::serve(
      size, threads, static_cast<muster::trainer::RematPolicy>(index),
      type == "bfloat16" ? muster::trainer::DType::kBf16 : muster::trainer::DType::kF32,
      *quantization);
}
