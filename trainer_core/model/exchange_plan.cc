#include "trainer_core/model/exchange_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "trainer_core/model/stage_plan.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

class ExchangePlanner {
 public:
  explicit ExchangePlanner(TransformerPlan& plan)
      : plan_(plan), part_(plan.part()), shape_(plan.attention_shape()) {}

  // Exchanges of heads happen before and after ring attention, so the buffers of both overlap.
  void attention() {
    plan_.memory.overlay(
        [&] {
          if (part_.sequence.ranks == 1) return;
          plan_.attention.staging =
              add("heads_staging", 2 * plan_.token_count() * shape_.qkv_width(), plan_.dtype);
        },
        [&] { ring(); });
  }

  void all_rows() {
    if (!part_.splits_rows() || plan_.decodes()) return;
    plan_.all_rows = add("all_rows", plan_.token_count() * plan_.model.emb_dim, plan_.dtype);
  }

  void logit_sums() {
    if (!part_.splits_rows() || plan_.decodes()) return;
    plan_.logit_sums = add("logit_sums", part_.tensor.ranks * plan_.head_rows * kLogitSums);
  }

  void stacked() {
    if (!plan_.stacks_qkv()) return;
    const int64_t rows = shape_.qkv_width(), width = plan_.model.emb_dim;
    StackedBuffers& stacked = plan_.stacked;
    stacked.qkv = add("stacked.qkv", rows * width, plan_.dtype);
    if (plan_.model.qkv_bias) stacked.qkv_bias = add("stacked.qkv_bias", rows);
    if (!plan_.training || plan_.model.lora.enabled()) return;  // frozen weights have no gradient
    stacked.d_qkv = add("stacked.d_qkv", rows * width);
    if (plan_.model.qkv_bias) stacked.d_qkv_bias = add("stacked.d_qkv_bias", rows);
  }

  void starts() {
    plan_.attention.starts = plan_.starts;
    if (!plan_.packed || part_.sequence.ranks == 1) return;
    plan_.attention.starts = add("heads_starts", plan_.token_count() * part_.sequence.ranks);
  }

  void routed() {
    plan_.routed_weights = plan_.weights;
    if (!has_experts(plan_)) return;
    const bool splits = part_.sequence_sharers() > 1;
    if (plan_.model.experts.balance_weight != 0 && (splits || plan_.sharding.has_reference))
      plan_.routed_weights = add("routed_weights", plan_.routed_tokens());
    if (!splits) return;
    plan_.routed_order = add("routed_order", plan_.routed_tokens());
  }

 private:
  BufferId add(std::string name, int64_t elements, DType dtype = DType::kF32) {
    return plan_.memory.add(std::move(name), MemoryCategory::kWorkspace,
                            static_cast<size_t>(elements) * dtype_bytes(dtype));
  }

  void ring() {
    const int ranks = part_.context.ranks;
    if (ranks == 1) return;
    const RingSizes sizes =
        ring_sizes(plan_.attended_shape(), plan_.dtype, ranks, 1, plan_.training);
    AttentionBuffers& buffers = plan_.attention;
    buffers.ring_blocks = {add("ring_blocks.0", sizes.block, plan_.dtype),
                           add("ring_blocks.1", sizes.block, plan_.dtype)};
    if (sizes.sums > 0) buffers.ring_sums = add("ring_sums", sizes.sums);
    if (sizes.gradients > 0) buffers.ring_gradients = add("ring_gradients", sizes.gradients);
  }

  TransformerPlan& plan_;
  const RankPart& part_;
  AttentionShape shape_;
};

}  // namespace

RingSizes ring_sizes(const AttentionShape& shape, DType dtype, int ranks, int threads,
                     bool training) {
  const int64_t block = shape.rows() * shape.kv_width(), out = shape.rows() * shape.out_width();
  RingSizes sizes{.block = block,
                  .sums = dtype == DType::kF32 ? 0 : out,
                  .gradients = training ? out + 3 * block : 0,
                  .workspace = 0};
  for (int rank = 0; rank < ranks; ++rank) {
    const Positions keys = context_positions(shape.seq_len * ranks, {rank, ranks});
    sizes.workspace = std::max(sizes.workspace, cpu_attention_elements(shape, keys, threads));
    if (!training) continue;
    sizes.workspace =
        std::max({sizes.workspace, cpu_attention_backward_elements(shape, keys, threads),
                  cuda_attention_backward_elements(shape)});
  }
  return sizes;
}

void plan_attention_exchange(TransformerPlan& plan) { ExchangePlanner(plan).attention(); }

void plan_exchange(TransformerPlan& plan) {
  ExchangePlanner planner(plan);
  planner.all_rows();
  planner.logit_sums();
  planner.stacked();
  planner.starts();
  planner.routed();
}

int64_t attention_elements(const TransformerPlan& plan, int32_t threads) {
  const AttentionShape shape = plan.attended_shape();
  const int ranks = plan.part().context.ranks;
  if (ranks > 1) return ring_sizes(shape, plan.dtype, ranks, threads, plan.training).workspace;
  const int64_t forward = cpu_attention_elements(shape, threads);
  if (!plan.training) return forward;
  return std::max({forward, cpu_attention_backward_elements(shape, threads),
                   cuda_attention_backward_elements(shape)});
}

std::vector<int32_t> routed_order(const TransformerPlan& plan) {
  const RankPart& part = plan.part();
  std::vector<TokenRows> ranks;
  for (int sequence = 0; sequence < part.sequence.ranks; ++sequence) {
    for (int context = 0; context < part.context.ranks; ++context) {
      const Positions positions =
          sequence_positions(context_positions(plan.seq_len, {context, part.context.ranks}),
                             {sequence, part.sequence.ranks});
      ranks.push_back({positions, 0});  // the parts of tensor ranks are consecutive
    }
  }
  return gathered_order(plan.batch, plan.seq_len, ranks, plan.token_count());
}

}  // namespace muster::trainer
