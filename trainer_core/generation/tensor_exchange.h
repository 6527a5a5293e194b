// The exchange of a decoding pass whose heads, MLP columns and vocabulary ids several ranks divide.
// All ranks have all rows of the residual stream: each layer sums the outputs of attention and of
// the MLP over the ranks. The rows of a step are few, so that dividing them, as training does,
// would save little and cost twice the exchanges.
#pragma once

#include <absl/status/status.h>

#include "trainer_core/comm/comm.h"
#include "trainer_core/model/model_exchange.h"

namespace muster::trainer {

class TensorExchange final : public NoExchange {
 public:
  // Both must outlive this object.
  TensorExchange(Ops& ops, ProcessGroup& group) : NoExchange(ops), group_(group) {}

  // Returns the first error, after which nothing is exchanged.
  const absl::Status& status() const { return status_; }

  // `partial` and `own` are the same rows.
  void sum_rows(ExchangeLabel, const Tensor& partial, const Tensor&) override {
    if (status_.ok()) status_ = group_.all_reduce(partial, "rows");
  }
  void take_largest(ExchangeLabel, const Tensor& values) override {
    if (status_.ok()) status_ = group_.all_reduce_max(values, "magnitudes");
  }
  bool broken() const override { return !status_.ok(); }

 private:
  ProcessGroup& group_;
  absl::Status status_;
};

}  // namespace muster::trainer
