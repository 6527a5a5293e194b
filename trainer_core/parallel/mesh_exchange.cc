#include "trainer_core/parallel/mesh_exchange.h"

#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/tensor_views.h"
#include "trainer_core/model/expert_memory.h"
#include "trainer_core/model/stage_plan.h"

namespace muster::trainer {
namespace {

// Returns the name on the progress page: "layer 3 mlp in".
std::string name_of(ExchangeLabel label) {
  const auto of_layer = [&](std::string_view part) {
    return absl::StrCat("layer ", label.layer, " ", av(part));
  };
  switch (label.site) {
    case ExchangeSite::kEmbedding:
      return "embedding";
    case ExchangeSite::kQkv:
      return of_layer("qkv");
    case ExchangeSite::kAttention:
      return of_layer("attention");
    case ExchangeSite::kOut:
      return of_layer("attention out");
    case ExchangeSite::kMlpUp:
      return of_layer("mlp in");
    case ExchangeSite::kMlpDown:
      return of_layer("mlp out");
    case ExchangeSite::kRouter:
      return of_layer("router");
    case ExchangeSite::kTargetWeights:
      return "target weights";
    case ExchangeSite::kHead:
      return "head";
  }
  return "";
}

std::string name_of(ExchangeLabel label, std::string_view collective) {
  return absl::StrCat(name_of(label), " ", av(collective));
}

}  // namespace

MeshExchange::MeshExchange(const TransformerPlan& plan, const Arena& arena, Ops& ops,
                           ProcessGroups& groups)
    : plan_(plan),
      arena_(arena),
      ops_(ops),
      groups_(groups),
      tensor_(groups.of({.axes = {MeshAxis::kTensor}})),
      routers_(groups.of({.axes = {MeshAxis::kSequence, MeshAxis::kContext, MeshAxis::kTensor}})),
      attention_(plan, arena, ops, groups) {
  if (plan.part().splits_experts() && has_experts(plan))
    share_experts(groups.of({.axes = {MeshAxis::kExpert}}));
}

void MeshExchange::share_experts(ProcessGroup& group) {
  const ExpertExchangeBuffers& buffers = plan_.expert_exchange;
  const int64_t rows = plan_.own_expert_rows_max();
  experts_.emplace(
      ops_, group, plan_.model.experts.count,
      Tensor::of(plan_.dtype, arena_.buffer(buffers.staging), {rows, expert_staging_width(plan_)}));
  if (!plan_.training) return;
  gates_ = {
      .rows = Tensor::f32(arena_.f32(buffers.gate_rows), {plan_.expert_rows_count()}),
      .gates = Tensor::f32(arena_.f32(buffers.gates), {rows}),
      .d_gates = Tensor::f32(arena_.f32(buffers.d_gates), {rows}),
      .in_order = Tensor::i32(static_cast<int32_t*>(arena_.buffer(buffers.rows_in_order)), {rows})};
  std::vector<int32_t> in_order(static_cast<size_t>(rows));
  std::iota(in_order.begin(), in_order.end(), 0);
  ops_.upload(in_order.data(), gates_.in_order);
}

absl::Status MeshExchange::finish() {
  status_.Update(groups_.finish());
  return status_;
}

template <class Exchange>
void MeshExchange::run(const Exchange& exchange) {
  if (!broken()) status_ = exchange();
}

Tensor MeshExchange::rows_like(const Tensor& own) const {
  return Tensor::of(plan_.dtype, arena_.buffer(plan_.all_rows), {plan_.token_count(), own.dim(1)});
}

Tensor MeshExchange::all_rows(ExchangeLabel label, const Tensor& own) {
  if (!splits_rows()) return own;
  const Tensor all = rows_like(own);
  run([&] { return tensor_.all_gather(own, all, name_of(label, "all-gather")); });
  return all;
}

Tensor MeshExchange::partial_rows(const Tensor& own) {
  return splits_rows() ? rows_like(own) : own;
}

void MeshExchange::sum_rows(ExchangeLabel label, const Tensor& partial, const Tensor& own) {
  if (!splits_rows()) return;
  run([&] { return tensor_.reduce_scatter(partial, own, name_of(label, "reduce-scatter")); });
}

void MeshExchange::take_largest(ExchangeLabel label, const Tensor& values) {
  if (!splits_rows()) return;
  run([&] { return tensor_.all_reduce_max(values, name_of(label, "magnitudes")); });
}

void MeshExchange::fill_routed(ExchangeLabel label, const Tensor& all) {
  if (routers_.size() == 1) return;
  const Tensor own = rows_at(all, plan_.first_routed() + plan_.first_own_row(), plan_.own_rows());
  run([&] { return routers_.all_gather(own, all, name_of(label, "all-gather")); });
}

void MeshExchange::to_heads(ExchangeLabel label, const AttentionShape& shape, const Tensor& qkv) {
  run([&] { return attention_.to_heads(shape, qkv, name_of(label)); });
}

void MeshExchange::attention(ExchangeLabel label, const AttentionLayer& layer) {
  run([&] { return attention_.forward(layer, name_of(label)); });
}

void MeshExchange::attention_backward(ExchangeLabel label, const AttentionLayer& layer,
                                      const Tensor& dout, const Tensor& dqkv, const Tensor& dbias,
                                      Accumulate accumulate) {
  run([&] { return attention_.backward(layer, dout, dqkv, dbias, accumulate, name_of(label)); });
}

void MeshExchange::count_rows(ExchangeLabel label, const ExpertTraffic& traffic) {
  if (!experts_) return;
  if (broken()) return experts_->count_none(traffic);
  run([&] { return experts_->count(traffic, name_of(label, "all-to-all")); });
}

void MeshExchange::to_experts(ExchangeLabel label, const ExpertTraffic& traffic, const Tensor& rows,
                              const Tensor& own) {
  if (!experts_) return;
  run([&] { return experts_->to_experts(traffic, rows, own, name_of(label, "all-to-all")); });
}

void MeshExchange::to_tokens(ExchangeLabel label, const ExpertTraffic& traffic, const Tensor& own,
                             const Tensor& rows) {
  if (!experts_) return;
  run([&] { return experts_->to_tokens(traffic, own, rows, name_of(label, "all-to-all")); });
}

void MeshExchange::combine_backward(ExchangeLabel label, const ExpertTraffic& traffic,
                                    const ExpertGates& gates) {
  if (!experts_)
    return ops_.combine_backward(gates.slots, gates.gates, gates.act, gates.dact, gates.dgates);
  run([&] {
    return experts_->combine_backward(traffic, gates, gates_, name_of(label, "all-to-all"));
  });
}

SlicedLogits MeshExchange::sliced(const HeadRows& rows) const {
  const int64_t sums = vocab_loss_sums(rows.targets.elements(), plan_.part().tensor.ranks);
  return {.slice = {plan_.vocabulary().first, plan_.model.vocab_size},
          .logits = rows.logits,
          .d_logits = rows.d_logits,
          .targets = rows.targets,
          .weights = rows.weights,
          .losses = rows.losses,
          .sums = Tensor::f32(arena_.f32(plan_.logit_sums), {sums})};
}

void MeshExchange::cross_entropy(const LossShape& shape, const HeadRows& rows) {
  if (!splits_rows())
    return ops_.cross_entropy(shape, rows.logits, rows.targets, rows.weights, rows.losses);
  run([&] { return vocabulary_loss(ops_, tensor_, shape, sliced(rows), "loss all-gather"); });
}

void MeshExchange::cross_entropy_backward(const LossShape& shape, const HeadRows& rows) {
  if (!splits_rows()) {
    return ops_.cross_entropy_backward(shape, rows.logits, rows.targets, rows.weights, rows.losses,
                                       rows.d_logits);
  }
  run([&] {
    return vocabulary_loss_backward(ops_, tensor_, shape, sliced(rows), "loss all-gather");
  });
}

}  // namespace muster::trainer
