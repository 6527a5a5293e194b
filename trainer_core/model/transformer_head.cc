// The head: computes logits and losses from the final hidden state, head_rows rows at a time, so
// that the logits of all T rows are never stored at once.
#include <algorithm>
#include <cmath>
#include <limits>

#include "trainer_core/base/tensor_views.h"
#include "trainer_core/model/head_rows.h"
#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {
namespace {

// The minimum rows of a chunk of logits, for GEMMs at full speed.
constexpr int64_t kHeadRowsMin = 64;

// Returns the score of row `row` from the sums (slices, rows, kLogitSums) of its logits.
TargetScore score_of(std::span<const float> sums, int64_t row, int64_t rows, int64_t slices) {
  const auto of_slice = [&](int64_t slice) {
    return sums.subspan(static_cast<size_t>((slice * rows + row) * kLogitSums));
  };
  double largest = -std::numeric_limits<double>::infinity(), target = 0, total = 0;
  for (int64_t slice = 0; slice < slices; ++slice) {
    largest = std::max(largest, static_cast<double>(of_slice(slice)[0]));
    target += of_slice(slice)[2];
  }
  for (int64_t slice = 0; slice < slices; ++slice)
    total += of_slice(slice)[1] * std::exp(of_slice(slice)[0] - largest);
  return {target - largest - std::log(total), target >= largest};
}

}  // namespace

// The result need not be a multiple of the batch.
int64_t head_rows(int64_t ids, int64_t tokens, int64_t batch, int64_t logits_bytes) {
  const int64_t row_bytes = ids * static_cast<int64_t>(sizeof(float));
  const int64_t wanted = std::max(logits_bytes / row_bytes, kHeadRowsMin);
  return std::max(batch, std::min(wanted, tokens));
}

// A chunk of R rows from `first` on: the hidden state and its gradient, (R, d) each. All chunks use
// the same buffer of logits.
struct Transformer::HeadChunk {
  int64_t first = 0;
  Tensor normed, d_normed;
  HeadRows rows;
};

void Transformer::scale_logits(const Tensor& hidden) {
  if (plan_.model.logits_scale != 1) ops_.scale(plan_.model.logits_scale, hidden);
}

// Calls `chunk`, which computes the losses of its rows, for each chunk, and returns the sums.
template <class Chunk>
LossSum Transformer::sum_losses(Piece piece, Accumulate accumulate, const Chunk& chunk) {
  const Tensor normed = exchange_.all_rows({ExchangeSite::kHead}, stream(plan_.final_normed));
  const Tensor d_normed = exchange_.partial_rows(stream(plan_.delta));
  replayed(piece, 0, accumulate, [&] {
    for (int64_t first = 0; first < rows_ && !broken(); first += plan_.head_rows) {
      const int64_t count = std::min(plan_.head_rows, rows_ - first);
      const HeadChunk chunk_rows{
          .first = first,
          .normed = rows_at(normed, first, count),
          .d_normed = rows_at(d_normed, first, count),
          .rows = {.logits = view(plan_.logits, {count, plan_.vocabulary().count}),
                   .d_logits = activation(plan_.d_logits, {count, plan_.vocabulary().count}),
                   .targets = tensor_at(view_i32(arena_, plan_.targets, rows_), first, {count}),
                   .weights = tensor_at(view(plan_.weights, {rows_}), first, {count}),
                   .losses = tensor_at(view(plan_.losses, {rows_}), first, {count})}};
      ops_.matmul(chunk_rows.normed, Transpose::kNo, weights_->head, Transpose::kYes,
                  chunk_rows.rows.logits, Accumulate::kNo);
      show("logits", chunk_rows.rows.logits);
      chunk(chunk_rows);
      show("losses", chunk_rows.rows.losses);
    }
  });
  // Ranks that split rows have the losses of all rows; each rank counts only those of its own rows.
  const auto sum_own = [&](BufferId id) {
    return ops_.sum(tensor_at(view(id, {rows_}), plan_.first_own_row(), {own_rows_}));
  };
  return {.loss = sum_own(plan_.losses), .weight = sum_own(plan_.weights)};
}

LossSum Transformer::head_loss() {
  const OpRange range(ops_, "head");
  return sum_losses(Piece::kHead, Accumulate::kNo, [&](const HeadChunk& chunk) {
    if (scores_ != nullptr) return score(chunk);
    exchange_.cross_entropy(plan_.loss_shape(), chunk.rows);
  });
}

// Uses the sums of vocabulary-parallel losses also if this rank has the complete vocabulary: they
// have the largest logit, which the losses alone do not.
void Transformer::score(const HeadChunk& chunk) {
  const HeadRows& rows = chunk.rows;
  const LossShape shape{.soft_cap = plan_.loss_shape().soft_cap, .z_loss = 0};
  const int64_t count = rows.targets.elements(), slices = plan_.part().tensor.ranks;
  Tensor sums;
  if (splits_rows()) {
    exchange_.cross_entropy(shape, rows);
    sums = view(plan_.logit_sums, {slices, count, kLogitSums});
  } else {
    // delta is unused after the last layer.
    MUSTER_CHECK(static_cast<size_t>(count * kLogitSums) * sizeof(float) <=
                 stream(plan_.delta).bytes())
        << "no room for the sums";
    sums = view(plan_.delta, {1, count, kLogitSums});
    ops_.logit_sums(shape, vocabulary_slice(), rows.logits, rows.targets, sums);
    ops_.sliced_cross_entropy(shape, sums, rows.weights, rows.losses);
  }
  if (broken()) return;
  std::vector<float> values(static_cast<size_t>(sums.elements()));
  ops_.download(sums, values.data());
  for (int64_t row = 0; row < count; ++row) {
    const int64_t own = chunk.first + row - plan_.first_own_row();
    if (own >= 0 && own < own_rows_) scores_->push_back(score_of(values, row, count, slices));
  }
}

// Also computes the gradients of the head and of the end, and writes the gradient of `output` to
// d_stream.
LossSum Transformer::head_loss_backward(Accumulate wanted) {
  const OpRange range(ops_, "head");
  Accumulate accumulate = blocks_.begin_gradient(plan_.head_block(), wanted);
  if (broken()) return {};
  const LossSum sum = sum_losses(Piece::kHeadBackward, accumulate, [&](const HeadChunk& chunk) {
    const Tensor& d_logits = chunk.rows.d_logits;
    exchange_.cross_entropy_backward(plan_.loss_shape(), chunk.rows);
    if (exists(grads_->head)) {
      ops_.matmul(d_logits, Transpose::kYes, chunk.normed, Transpose::kNo, grads_->head,
                  chunk.first == 0 ? accumulate : Accumulate::kYes);
    }
    ops_.matmul(d_logits, Transpose::kNo, weights_->head, Transpose::kNo, chunk.d_normed,
                Accumulate::kNo);
  });
  const Tensor delta = stream(plan_.delta);
  exchange_.sum_rows({ExchangeSite::kHead}, exchange_.partial_rows(delta), delta);
  scale_logits(delta);
  if (plan_.model.logits_via_embedding) {
    // The embedding adds the gradients of positions to the same block at the end of the pass.
    if (exists(grads_->positions) && accumulate == Accumulate::kNo) ops_.fill(grads_->positions, 0);
    finish_gradient(plan_.head_block());
    accumulate = blocks_.begin_gradient(plan_.end_block(), wanted);
  }
  end_backward(accumulate);
  return sum;
}

void Transformer::download_logits(const Tensor& hidden, float* out) {
  const Tensor logits = view(plan_.logits, {hidden.dim(0), plan_.vocabulary().count});
  ops_.matmul(hidden, Transpose::kNo, weights_->head, Transpose::kYes, logits, Accumulate::kNo);
  if (plan_.model.final_logits_soft_cap > 0)
    ops_.soft_cap(plan_.model.final_logits_soft_cap, logits);
  ops_.download(logits, out);
}

void Transformer::all_logits(std::span<const int32_t> tokens, float* out) {
  MUSTER_CHECK(!plan_.decodes() && !plan_.packed && !plan_.part().exchanges())
      << "a plan for other sequences, or of some of the logits";
  MUSTER_CHECK(tokens.size() == static_cast<size_t>(rows_)) << tokens.size() << " tokens";
  MUSTER_CHECK(plan_.pipeline().has_all_layers()) << "some of the layers";
  ops_.upload(tokens.data(), view_i32(arena_, plan_.tokens, rows_));
  forward_layers();
  if (broken()) return;
  for (int64_t first = 0; first < rows_; first += plan_.head_rows) {
    const int64_t count = std::min(plan_.head_rows, rows_ - first);
    download_logits(rows_at(stream(plan_.final_normed), first, count),
                    out + first * plan_.model.vocab_size);
  }
  release_end();
}

PagedRows Transformer::paged_rows() const {
  const auto blocks = static_cast<int32_t*>(arena_.buffer(plan_.paged.blocks));
  return {.sequences = view_i32(arena_, plan_.paged.sequences, rows_),
          .positions = view_i32(arena_, plan_.paged.positions, rows_),
          .blocks = Tensor::i32(blocks, {sequences_, plan_.cache.blocks_per_sequence()})};
}

// Copies the batch, and gathers the rows of the tables of positions.
void Transformer::upload(const DecodeBatch& batch) {
  const PagedRows rows = paged_rows();
  ops_.upload(batch.tokens.data(), view_i32(arena_, plan_.tokens, rows_));
  ops_.upload(batch.sequences.data(), rows.sequences);
  ops_.upload(batch.positions.data(), rows.positions);
  ops_.upload(batch.blocks.data(), rows.blocks);
  if (exists(weights_->positions)) {
    ops_.embedding(rows.positions, weights_->positions, {}, 1,
                   view(plan_.paged.learned, {rows_, width_}));
  }
  if (!plan_.model.has_rope()) return;
  const int64_t half = shape_.head_dim / 2;
  const auto gather = [&](BufferId table, BufferId to) {
    ops_.embedding(rows.positions, view(table, {plan_.positions(), half}), {}, 1,
                   view(to, {rows_, half}));
  };
  gather(plan_.rope_cos, plan_.paged.rope_cos);
  gather(plan_.rope_sin, plan_.paged.rope_sin);
}

void Transformer::decode(const DecodeBatch& batch) {
  const int64_t per_sequence = plan_.cache.blocks_per_sequence();
  rows_ = own_rows_ = shape_.seq_len = static_cast<int64_t>(batch.tokens.size());
  sequences_ = static_cast<int64_t>(batch.blocks.size()) / std::max<int64_t>(per_sequence, 1);
  MUSTER_CHECK(plan_.decodes() && rows_ >= 1 && rows_ <= plan_.seq_len && sequences_ >= 1 &&
               sequences_ <= plan_.cache.sequences &&
               batch.sequences.size() == batch.tokens.size() &&
               batch.positions.size() == batch.tokens.size())
      << rows_ << " rows of " << sequences_ << " sequences";
  set_adapter_rows(batch.adapters);
  upload(batch);
  forward_layers();
  release_end();
}

void Transformer::set_adapter_rows(std::span<const int32_t> adapters) {
  MUSTER_CHECK(adapters.empty() || std::ssize(adapters) == rows_)
      << adapters.size() << " adapters of " << rows_ << " rows";
  adapter_rows_.clear();
  for (int64_t row = 0; row < std::ssize(adapters); ++row) {
    const int32_t adapter = adapters[static_cast<size_t>(row)];
    MUSTER_CHECK(adapter >= -1 && adapter < std::ssize(plan_.served)) << "adapter " << adapter;
    if (adapter < 0) continue;
    if (!adapter_rows_.empty() && adapter_rows_.back().adapter == static_cast<size_t>(adapter) &&
        adapter_rows_.back().first + adapter_rows_.back().count == row) {
      ++adapter_rows_.back().count;
    } else {
      adapter_rows_.push_back({static_cast<size_t>(adapter), row, 1});
    }
  }
}

void Transformer::row_logits(std::span<const int32_t> rows, float* out) {
  const auto count = static_cast<int64_t>(rows.size());
  MUSTER_CHECK(plan_.decodes() && count >= 1 && count <= plan_.head_rows) << count << " rows";
  const Tensor wanted = view_i32(arena_, plan_.paged.logits_rows, count);
  ops_.upload(rows.data(), wanted);
  // Gathers into delta, whose rows are unused after the last layer.
  const Tensor hidden = activation(plan_.delta, {count, width_});
  ops_.embedding(wanted, stream(plan_.final_normed), {}, 1, hidden);
  download_logits(hidden, out);
}

}  // namespace muster::trainer
