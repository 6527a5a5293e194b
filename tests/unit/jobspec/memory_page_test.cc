// docs/memory.md contains numbers of the plans. When a plan changes, the failed test prints the new
// text of the page.
#include <gmock/gmock.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include <absl/strings/str_format.h>

#include "tests/paths.h"
#include "tests/unit/jobspec/config_files.h"
#include "trainer_core/model/plan_builder.h"
#include "trainer_core/model/transformer.h"

namespace muster::jobspec {
namespace {

using trainer::AttentionShape;
using trainer::LayerPlacements;
using trainer::MemoryCategory;
using trainer::Placement;
using trainer::TransformerPlan;

constexpr double kMiB = 1 << 20;

// Multiplications and additions per token: 2 for each parameter of a matmul, and attention over
// half the sequence on average.
struct Flops {
  explicit Flops(const TransformerPlan& plan) {
    const AttentionShape shape = plan.attention_shape();
    const auto width = static_cast<double>(plan.model.emb_dim),
               mlp = double{1} * plan.model.mlp_dim;
    qkv = 2 * width * static_cast<double>(shape.qkv_width());
    context = 2.0 * plan.seq_len * static_cast<double>(shape.out_width());
    out = 2 * width * static_cast<double>(shape.out_width());
    gate_up = 2 * width * static_cast<double>(plan.activation().input_width(plan.model.mlp_dim));
    down = 2 * width * mlp;
    head = 2 * width * plan.model.vocab_size;
    layers = plan.model.num_layers;
  }

  double forward() const { return layers * (qkv + context + out + gate_up + down) + head; }
  // The operations of recompute_layer(), in all layers but the last.
  double again(const LayerPlacements& placements) const {
    const auto of = [](Placement placement, double flops) {
      return placement == Placement::kRemat ? flops : 0;
    };
    return (layers - 1) * (of(placements.qkv, qkv) + of(placements.context, context) +
                           of(placements.middle, out) + of(placements.gate_up, gate_up));
  }

  double qkv, context, out, gate_up, down, head, layers;
};

class MemoryPage : public ConfigFiles {
 protected:
  static TransformerPlan plan_of(const trainer::TrainConfig& config,
                                 const LayerPlacements& placements, int32_t threads = 1) {
    const int64_t moments = 2 * parameter_count(model_params(config.model));
    return build_transformer_plan(config.model, config.per_device_batch_size,
                                  config.max_target_length, config.activation_type(), placements,
                                  true, threads, moments);
  }

  static std::string row_of(const TransformerPlan& plan, std::string_view policy) {
    const auto mib = [&](MemoryCategory category) {
      return static_cast<double>(plan.memory.category_bytes(category)) / kMiB;
    };
    const Flops flops(plan);
    // A backward pass costs two forward passes.
    return absl::StrFormat("| `%s` | %.1f | %.1f | %.1f | %d | %.1f%% |\n", std::string(policy),
                           mib(MemoryCategory::kActivations), mib(MemoryCategory::kOffloaded),
                           mib(MemoryCategory::kWorkspace), plan.memory.total_bytes(),
                           100 * flops.again(plan.placements) / (3 * flops.forward()));
  }

  static std::string section_of(const trainer::TrainConfig& config) {
    const TransformerPlan full = plan_of(config, {});
    const auto thread = plan_of(config, {}, 2).memory.total_bytes() - full.memory.total_bytes();
    const double state =
        static_cast<double>(full.memory.category_bytes(MemoryCategory::kParameters) +
                            full.memory.category_bytes(MemoryCategory::kGradients) +
                            full.memory.category_bytes(MemoryCategory::kOptimizer)) /
        kMiB;
    std::string text = absl::StrFormat(
        "### %s, %d sequence of %d tokens\n\nParameters, gradients and moments: %.1f MiB under "
        "each "
        "policy. A second thread adds %.1f MiB.\n\n"
        "| policy | kept on the device, MiB | kept on the host, MiB | shared, MiB | whole plan, "
        "bytes | recomputed |\n|---|---|---|---|---|---|\n",
        config.model.name, config.per_device_batch_size, config.max_target_length, state,
        static_cast<double>(thread) / kMiB);
    for (size_t i = 0; i < trainer::kRematPolicyNames.size(); ++i) {
      const auto policy = static_cast<trainer::RematPolicy>(i);
      if (policy == trainer::RematPolicy::kCustom) continue;
      text +=
          row_of(plan_of(config, trainer::layer_placements(policy)), trainer::kRematPolicyNames[i]);
    }
    return text;
  }

  static std::string page() {
    std::ifstream file(source_dir() + "/docs/memory.md");
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
};

TEST_F(MemoryPage, MatchesThePlans) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"model_name=llama2-7b", "max_target_length=4096"},
        {"model_name=gpt3-6b", "max_target_length=1024"},
        {"model_name=llama2-tiny", "max_target_length=256"}}) {
    std::vector<std::string> overrides = words;
    overrides.emplace_back("per_device_batch_size=1");
    const auto job = resolve(overrides);
    ASSERT_TRUE(job.ok()) << job.status();
    const std::string section = section_of(job->train);
    EXPECT_TRUE(page().find(section) != std::string::npos) << "docs/memory.md must contain:\n\n"
                                                           << section;
  }
}

}  // namespace
}  // namespace muster::jobspec
