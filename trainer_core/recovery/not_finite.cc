#include "trainer_core/recovery/not_finite.h"

#include <array>
#include <cmath>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "trainer_core/rank/step_passes.h"

namespace muster::trainer {
namespace {

// The sum is computed in fp64, in which squares of fp32 values do not overflow.
bool is_finite(Ops& ops, const Tensor& x) { return std::isfinite(ops.sum_of_squares(x)); }

class FirstNotFinite : public PassObserver {
 public:
  explicit FirstNotFinite(Ops& ops) : ops_(ops) {}

  void computed(const std::string& name, const Tensor& x) override { inspect("", name, x); }
  void gradient(const std::string& name, const Tensor& x) override {
    inspect("gradient of ", name, x);
  }
  const std::string& name() const { return name_; }

 private:
  void inspect(const char* what, const std::string& name, const Tensor& x) {
    if (name_.empty() && !is_finite(ops_, x)) name_ = what + name;
  }

  Ops& ops_;
  std::string name_;
};

std::string in_parameters(RankModel& rank_model) {
  for (const ShardPiece& piece : rank_model.plan().model.sharding.layout.pieces()) {
    if (!is_finite(rank_model.ops(), rank_model.model().parameters(piece)))
      return "parameter " + rank_model.plan().model.sharding.layout.table()[piece.param].name;
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

absl::StatusOr<std::optional<NotFiniteTensor>> find_not_finite(RankModel& rank_model,
                                                               StepData& data, uint64_t first) {
  std::optional<NotFiniteTensor> found;
  const auto note = [&](std::string name, int32_t micro_batch) {
    if (!found && !name.empty())
      found = NotFiniteTensor{std::move(name), data.samples(first, micro_batch)};
  };
  note(in_parameters(rank_model), 0);
  // Runs all passes even after a tensor was found, because other ranks may need this rank's part of
  // each pass.
  FirstNotFinite seen(rank_model.ops());
  rank_model.model().observe(&seen);
  const absl::Cleanup stop_observing = [&] { rank_model.model().observe(nullptr); };
  int32_t running = 0;
  const auto load = [&](int32_t micro_batch) { return data.load(first, micro_batch); };
  const auto before_pass = [&](int32_t micro_batch) {
    note(seen.name(), running);
    running = micro_batch;
  };
  const auto passes =
      StepPasses(rank_model)
          .train(data.micro_batches(), load, {.sums_over_data = false, .before_pass = before_pass});
  if (!passes.ok()) return passes.status();
  note(seen.name(), running);
  if (auto status = rank_model.finish_passes(); !status.ok()) return status;
  return found;
}

std::string name_not_finite(ProcessGroup& group, const StepTail& reduced, bool is_local) {
  if (reduced.bad_ranks > 0)
    return name_ranks("loss", reduced.bad_ranks, reduced.bad_rank_sum, group.size());
  std::array<float, 2> votes = {is_local ? 1.0F : 0.0F,
                                is_local ? static_cast<float>(group.rank()) : 0.0F};
  const absl::Status status = group.all_reduce(votes, "not finite");
  if (!status.ok() || votes[0] == 0) return "the sum of all ranks' gradients";
  return name_ranks("gradient", static_cast<int>(votes[0]), static_cast<int>(votes[1]),
                    group.size());
}

absl::StatusOr<std::string> blame_not_finite(ProcessGroup& group, RankModel& rank_model,
                                             StepData& data, uint64_t first,
                                             const StepTail& reduced, bool own_loss_is_bad,
                                             const std::function<void(const std::string&)>& log) {
  bool is_local = false;
  if (own_loss_is_bad || reduced.bad_ranks == 0 || rank_model.shares_parameters()) {
    const auto tensor = find_not_finite(rank_model, data, first);
    if (!tensor.ok() && rank_model.shares_parameters()) return tensor.status();
    is_local = tensor.ok() && tensor->has_value();
    if (is_local) log(describe(**tensor));
  }
  return name_not_finite(group, reduced, is_local);
}

}  // namespace muster::trainer
