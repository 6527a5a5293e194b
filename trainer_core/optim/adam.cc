// adamw and adam_pax. Both have the same state and, without adam_clip_threshold, the same kernel.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "common/random/fnv.h"
#include "trainer_core/base/check.h"
#include "trainer_core/base/name_patterns.h"
#include "trainer_core/optim/optimizer_factories.h"
#include "trainer_core/optim/tensor_sums.h"

namespace muster::trainer {
namespace {

class Adam : public Optimizer {
 protected:
  Adam(OptimizerType type, const OptimizerConfig& config, ShardLayout layout)
      : Optimizer(type, std::move(layout)),
        config_(config),
        m_type_(config.mu_dtype == ComputeType::kBfloat16 ? DType::kBf16 : DType::kF32),
        m_(add_state_like_parameters("m", m_type_)),
        v_(add_state_like_parameters("v")) {}

  Tensor m(const UpdateBlocks& blocks, int64_t begin, int64_t count) const {
    auto* const first = reinterpret_cast<std::byte*>(blocks.state.data());
    const auto bytes = static_cast<size_t>(m_ + begin) * dtype_bytes(m_type_);
    return Tensor::of(m_type_, first + bytes, {count});
  }
  Tensor v(const UpdateBlocks& blocks, int64_t begin, int64_t count) const {
    return part(blocks.state, v_ + begin, count);
  }

  // Returns the factor by which the product of learning rate and parameter is decayed.
  double weight_decay() const {
    if (config_.decay_times_learning_rate || config_.learning_rate == 0)
      return config_.weight_decay;
    return config_.weight_decay / config_.learning_rate;
  }

  AdamStep common(const UpdateStep& step) const {
    std::optional<AdamStep::Noise> noise;
    if (m_type_ == DType::kBf16 && config_.mu_stochastic_rounding)
      noise = {.key = step.seed ^ fnv1a("first moments"), .update = static_cast<uint64_t>(step.t)};
    return {.learning_rate = step.learning_rate,
            .b1 = config_.b1,
            .b2 = config_.b2,
            .eps = config_.eps,
            .eps_root = config_.eps_root,
            .weight_decay = weight_decay(),
            .grad_scale = step.grad_scale,
            .noise = noise};
  }
  static AdamStep from(AdamStep step, int64_t begin) {
    if (step.noise) step.noise->first = begin;
    return step;
  }

  void apply_fused(Ops& ops, const AdamStep& adam, const UpdateBlocks& blocks,
                   const ElementRange& range) const {
    const AdamStep step = from(adam, range.begin);
    ops.adam(step, part(blocks.grads, range.begin, range.count),
             part(blocks.params, range.begin, range.count), m(blocks, range.begin, range.count),
             v(blocks, range.begin, range.count));
  }

  const OptimizerConfig config_;

 private:
  const DType m_type_;
  const int64_t m_, v_;  // offsets, in elements of their type
};

class AdamW : public Adam {
 public:
  AdamW(const OptimizerConfig& config, ShardLayout layout)
      : Adam(OptimizerType::kAdamW, config, std::move(layout)) {
    const auto mask = NamePatterns::compile(config.adamw_mask);
    MUSTER_CHECK(mask.ok()) << mask.status().message();
    ranges_ = ranges_of(layout_, [&](const ParamSpec& spec) { return !mask->match(spec.name); });
  }

 private:
  absl::Status apply(Ops& ops, const UpdateStep& step, const UpdateBlocks& blocks,
                     SumExchange*) override {
    AdamStep adam = common(step);
    adam.bias_correction1 = 1 - std::pow(config_.b1, static_cast<double>(step.t));
    adam.bias_correction2 = 1 - std::pow(config_.b2, static_cast<double>(step.t));
    for (const ElementRange& range : ranges_) {
      adam.weight_decay = range.decay ? weight_decay() : 0;
      apply_fused(ops, adam, blocks, range);
    }
    return absl::OkStatus();
  }

  std::vector<ElementRange> ranges_;
};

class AdamPax : public Adam {
 public:
  AdamPax(const OptimizerConfig& config, ShardLayout layout)
      : Adam(OptimizerType::kAdamPax, config, std::move(layout)),
        ranges_(ranges_of(layout_, [](const ParamSpec&) { return true; })),
        squares_(layout_, 0, layout_.buckets().size(), [](const ParamSpec&) { return 1; }) {}

 private:
  static double corrected(double b, int64_t t) {
    const auto n = static_cast<double>(t);
    return b * (1 - std::pow(b, n - 1)) / (1 - std::pow(b, n));
  }

  absl::Status apply(Ops& ops, const UpdateStep& step, const UpdateBlocks& blocks,
                     SumExchange* exchange) override {
    AdamStep adam = common(step);
    adam.b1 = corrected(config_.b1, step.t);
    adam.b2 = corrected(config_.b2, step.t);
    if (config_.update_clip > 0) return apply_bounded(ops, adam, blocks, exchange);
    for (const ElementRange& range : ranges_) apply_fused(ops, adam, blocks, range);
    return absl::OkStatus();
  }

  absl::Status apply_bounded(Ops& ops, const AdamStep& adam, const UpdateBlocks& blocks,
                             SumExchange* exchange) {
    squares_.clear();
    for (const ShardPiece& piece : layout_.pieces()) {
      const Tensor update = part(blocks.grads, piece);
      ops.adam_direction(from(adam, piece.offset), update, m(blocks, piece.offset, piece.count),
                         v(blocks, piece.offset, piece.count));
      squares_.of(piece)[0] += ops.sum_of_squares(update);
    }
    if (auto status = squares_.add_up(exchange); !status.ok()) return status;
    const double kept = 1 - adam.learning_rate * adam.weight_decay;
    for (const ShardPiece& piece : layout_.pieces()) {
      const double size = rms(squares_.of(piece)[0], layout_.table()[piece.param].elements());
      const double bound = std::max(1.0, size / config_.update_clip);
      ops.apply_update(adam.learning_rate / bound, kept, part(blocks.grads, piece),
                       part(blocks.params, piece));
    }
    return absl::OkStatus();
  }

  std::vector<ElementRange> ranges_;
  TensorSums squares_;  // sums of squared updates
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerConfig& config, ShardLayout layout) {
  return std::make_unique<AdamW>(config, std::move(layout));
}

std::unique_ptr<Optimizer> make_adam_pax(const OptimizerConfig& config, ShardLayout layout) {
  return std::make_unique<AdamPax>(config, std::move(layout));
}

}  // namespace muster::trainer
