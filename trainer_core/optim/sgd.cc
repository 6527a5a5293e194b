#include <utility>

#include "trainer_core/optim/optimizer_factories.h"

namespace muster::trainer {
namespace {

class Sgd : public Optimizer {
 public:
  explicit Sgd(ShardLayout layout)
      : Optimizer(OptimizerType::kSgd, std::move(layout)),
        ranges_(ranges_of(layout_, [](const ParamSpec&) { return true; })) {}

 private:
  absl::Status apply(Ops& ops, const UpdateStep& step, const UpdateBlocks& blocks,
                     SumExchange*) override {
    for (const ElementRange& range : ranges_) {
      ops.apply_update(step.learning_rate * step.grad_scale, 1,
                       part(blocks.grads, range.begin, range.count),
                       part(blocks.params, range.begin, range.count));
    }
    return absl::OkStatus();
  }

  const std::vector<ElementRange> ranges_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(ShardLayout layout) {
  return std::make_unique<Sgd>(std::move(layout));
}

}  // namespace muster::trainer
