// Makes exchanges possible within recorded runs of calls (ops/replay.h), such as CUDA graphs. An
// exchange with other ranks divides the recording: it is called between the parts at every replay.
// An exchange that involves only this rank is recorded.
//
// Exchanges of experts must not be called within a run, because their number of rows changes from
// pass to pass.
#pragma once

#include <functional>

#include "trainer_core/model/model_exchange.h"
#include "trainer_core/model/rank_part.h"
#include "trainer_core/ops/replay.h"

namespace muster::trainer {

// A ModelExchange that forwards to another one.
class ReplayedExchange final : public ModelExchange {
 public:
  // `exchange` must be that of a rank with this part, and must outlive this object.
  ReplayedExchange(ModelExchange& exchange, const RankPart& part)
      : exchange_(exchange),
        splits_rows_(part.splits_rows()),
        splits_sequences_(part.sequence_sharers() > 1) {}

  // Sets the replayer; null, the initial value: no runs are recorded.
  void set_replayer(Replayer* replayer) { replayer_ = replayer; }

  // Returns the buffer of the result at once; a replay fills it at the position of this call.
  Tensor all_rows(ExchangeLabel label, const Tensor& own) override {
    const Tensor all = exchange_.partial_rows(own);
    call(splits_rows_, [=, this] { (void)exchange_.all_rows(label, own); });
    return all;
  }
  Tensor partial_rows(const Tensor& own) override { return exchange_.partial_rows(own); }
  void sum_rows(ExchangeLabel label, const Tensor& partial, const Tensor& own) override {
    call(splits_rows_, [=, this] { exchange_.sum_rows(label, partial, own); });
  }
  void take_largest(ExchangeLabel label, const Tensor& values) override {
    call(splits_rows_, [=, this] { exchange_.take_largest(label, values); });
  }
  void fill_routed(ExchangeLabel label, const Tensor& all) override {
    call(splits_rows_ || splits_sequences_, [=, this] { exchange_.fill_routed(label, all); });
  }
  void to_heads(ExchangeLabel label, const AttentionShape& shape, const Tensor& qkv) override {
    call(splits_sequences_, [=, this] { exchange_.to_heads(label, shape, qkv); });
  }
  void attention(ExchangeLabel label, const AttentionLayer& layer) override {
    call(splits_sequences_, [=, this] { exchange_.attention(label, layer); });
  }
  void attention_backward(ExchangeLabel label, const AttentionLayer& layer, const Tensor& dout,
                          const Tensor& dqkv, const Tensor& dbias, Accumulate accumulate) override {
    call(splits_sequences_,
         [=, this] { exchange_.attention_backward(label, layer, dout, dqkv, dbias, accumulate); });
  }
  void count_rows(ExchangeLabel label, const ExpertTraffic& traffic) override {
    exchange_.count_rows(label, traffic);
  }
  void to_experts(ExchangeLabel label, const ExpertTraffic& traffic, const Tensor& rows,
                  const Tensor& own) override {
    exchange_.to_experts(label, traffic, rows, own);
  }
  void to_tokens(ExchangeLabel label, const ExpertTraffic& traffic, const Tensor& own,
                 const Tensor& rows) override {
    exchange_.to_tokens(label, traffic, own, rows);
  }
  void combine_backward(ExchangeLabel label, const ExpertTraffic& traffic,
                        const ExpertGates& gates) override {
    exchange_.combine_backward(label, traffic, gates);
  }
  void cross_entropy(const LossShape& shape, const HeadRows& rows) override {
    call(splits_rows_, [=, this] { exchange_.cross_entropy(shape, rows); });
  }
  void cross_entropy_backward(const LossShape& shape, const HeadRows& rows) override {
    call(splits_rows_, [=, this] { exchange_.cross_entropy_backward(shape, rows); });
  }
  bool broken() const override { return exchange_.broken(); }

 private:
  template <class Exchange>
  void call(bool exchanges, const Exchange& exchange) {
    if (exchanges && replayer_ != nullptr) return replayer_->call_unrecorded(exchange);
    exchange();
  }

  ModelExchange& exchange_;
  const bool splits_rows_, splits_sequences_;
  Replayer* replayer_ = nullptr;
};

}  // namespace muster::trainer
