#include "trainer_core/not_finite.h"

#include <array>
#include <cmath>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

// Squares of fp32 numbers do not overflow fp64.
bool is_finite(Ops& ops, const Tensor& x) { return std::isfinite(ops.sum_of_squares(x)); }

class FirstNotFinite : public ForwardObserver {
 public:
  explicit FirstNotFinite(Ops& ops) : ops_(ops) {}

  void computed(const std::string& name, const Tensor& x) override {
    if (name_.empty() && !is_finite(ops_, x)) name_ = name;
  }
  const std::string& name() const { return name_; }

 private:
  Ops& ops_;
  std::string name_;
};

Tensor row_of(std::span<float> block, const ParamSpec& spec) {
  return Tensor::f32(block.data() + spec.offset, {spec.elements()});
}

std::string in_forward(Replica& replica, const Batch& batch) {
  FirstNotFinite first(replica.ops());
  replica.model().observe(&first);
  const absl::Cleanup stop_observing = [&] { replica.model().observe(nullptr); };
  replica.model().forward(batch);
  return first.name();
}

std::string in_backward(Replica& replica, const Batch& batch) {
  replica.model().forward_backward(batch);
  const std::vector<ParamSpec>& table = replica.table();
  for (auto spec = table.rbegin(); spec != table.rend(); ++spec) {
    if (!is_finite(replica.ops(), row_of(replica.model().grads(), *spec)))
      return "gradient of " + spec->name;
  }
  return "";
}

std::string name_ranks(const char* what, int bad_ranks, int bad_rank_sum, int size) {
  if (bad_ranks == 1) return absl::StrCat("the ", what, " of rank ", bad_rank_sum);
  return absl::StrCat("the ", what, " of ", bad_ranks, " of ", size, " ranks");
}

}  // namespace

std::string describe(const NotFiniteTensor& tensor) {
  return absl::StrCat("the first tensor that is not finite is ", tensor.name,
                      ", in the batch of global samples ", tensor.samples.first, " to ",
                      tensor.samples.first + tensor.samples.count - 1);
}

absl::StatusOr<std::optional<NotFiniteTensor>> find_not_finite(Replica& replica, StepData& data,
                                                               uint64_t first) {
  for (const ParamSpec& spec : replica.table()) {
    if (!is_finite(replica.ops(), row_of(replica.model().params(), spec)))
      return NotFiniteTensor{"parameter " + spec.name, data.samples(first, 0)};
  }
  for (int32_t i = 0; i < data.micro_batches(); ++i) {
    const auto batch = data.load(first, i);
    if (!batch.ok()) return batch.status();
    std::string name = in_forward(replica, *batch);
    if (name.empty()) name = in_backward(replica, *batch);
    if (!name.empty()) return NotFiniteTensor{std::move(name), data.samples(first, i)};
  }
  return std::nullopt;
}

std::string name_not_finite(ProcessGroup& group, const StepTail& reduced, bool found_here) {
  if (reduced.bad_ranks > 0)
    return name_ranks("loss", reduced.bad_ranks, reduced.bad_rank_sum, group.size());
  std::array<float, 2> votes = {found_here ? 1.0F : 0.0F,
                                found_here ? static_cast<float>(group.rank()) : 0.0F};
  const absl::Status status = group.all_reduce(votes, "not finite");
  if (!status.ok() || votes[0] == 0) return "the sum of all ranks' gradients";
  return name_ranks("gradient", static_cast<int>(votes[0]), static_cast<int>(votes[1]),
                    group.size());
}

}  // namespace muster::trainer
