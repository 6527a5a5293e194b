// The adapters of frozen weights (base/lora.h). Kernels with the same input are stacked into one
// GEMM, and so are their adapters: the matrices A are stacked, and the matrices B are copied to one
// block-diagonal matrix (out, R), so that any adapted projections of a GEMM need two more GEMMs.
//
// Tensor parallelism needs no further exchange. If ranks split the columns of the output, each rank
// has its rows of B and all of A; if they split the input, each has its columns of A and all of B.
// In both cases the adapter's output has the split, or the partial sums, of the projection's own.
#include <algorithm>

#include "common/random/fnv.h"
#include "trainer_core/base/tensor_views.h"
#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {
namespace {

// Calls chunk(first, count) for each part of `rows` rows that has at most `size` rows.
template <class Chunk>
void for_each_chunk(int64_t rows, int64_t size, const Chunk& chunk) {
  for (int64_t first = 0; first < rows; first += size) chunk(first, std::min(size, rows - first));
}

}  // namespace

bool Transformer::is_adapted(const Dense& dense) const {
  return dense &&
         exists(weights_->layers[dense->layer].adapters[static_cast<size_t>(dense->product)].a);
}

// Returns the matrices B of a GEMM as one matrix (out, R), whose columns are ordered by projection.
Tensor Transformer::block_diagonal(const Adapters& adapters, int64_t out) {
  if (adapters.is_whole) return adapters.projections.front().b;
  const int64_t rank = plan_.model.lora.rank;
  const Tensor all = view(plan_.adapters.b, {out, adapters.a.dim(0)});
  ops_.fill(all, 0);
  int64_t column = 0;
  for (const Adapters::Projection& projection : adapters.projections) {
    const Tensor rows = rows_at(all, projection.first_row, projection.b.dim(0));
    ops_.copy_columns(projection.b, 0, rows, column, rank);
    column += rank;
  }
  return all;
}

// Applies dropout to the adapters' input, or to its gradient, from row `first` on.
void Transformer::adapter_dropout(const DenseSite& site, int64_t first, const Tensor& x) {
  const double rate = plan_.model.lora.dropout;
  if (!dropout_ || rate == 0) return;
  const auto product = static_cast<uint32_t>(site.product);
  SampleElements elements{dropout_->first_sample, TokenRows{shape_.row_positions(), first}};
  if (site.product == DenseProduct::kOut) {
    elements.first_column =
        share_of(plan_.model.num_query_heads, plan_.part().tensor).first * plan_.model.head_dim;
    elements.columns = int64_t{plan_.model.num_query_heads} * plan_.model.head_dim;
  } else if (site.product == DenseProduct::kDown) {
    elements.first_column = plan_.mlp_columns().first;
    elements.columns = plan_.model.mlp_dim;
  }
  ops_.dropout({.rate = rate,
                .key = dropout_->seed ^ fnv1a("adapter dropout"),
                .location = static_cast<uint32_t>(site.layer * kDenseProducts) + product,
                .elements = elements},
               x);
}

// Returns rows of the adapters' input: those of x or, with dropout, a masked copy.
Tensor Transformer::adapter_input(const DenseSite& site, const Tensor& x, int64_t first,
                                  int64_t rows) {
  const Tensor part = rows_at(x, first, rows);
  if (!dropout_ || plan_.model.lora.dropout == 0) return part;
  const Tensor dropped = activation(plan_.adapters.wide, {rows, x.dim(1)});
  ops_.copy(part, dropped);
  adapter_dropout(site, first, dropped);
  return dropped;
}

void Transformer::add_adapters(const DenseSite& site, const Tensor& x, const Tensor& y) {
  const Adapters& adapters =
      weights_->layers[site.layer].adapters[static_cast<size_t>(site.product)];
  const Tensor b = block_diagonal(adapters, y.dim(1));
  for_each_chunk(rows_, plan_.adapters.chunk_rows, [&](int64_t first, int64_t rows) {
    add_low_rank(adapter_input(site, x, first, rows), adapters.a, b, plan_.model.lora.scale(),
                 rows_at(y, first, rows));
  });
}

// Only the rows of an adapter are multiplied with its matrices.
void Transformer::add_served_adapters(const DenseSite& site, const Tensor& x, const Tensor& y) {
  for (const AdapterRows& group : adapter_rows_) {
    const ServedAdapter& adapter = plan_.served[group.adapter];
    const ServedProduct& product = adapter.layers[site.layer][static_cast<size_t>(site.product)];
    if (product.columns == 0) continue;
    const Tensor block = activation(adapter.block, {adapter.elements});
    const Tensor a = tensor_at(block, product.a, {product.columns, x.dim(1)});
    const Tensor b = tensor_at(block, product.b, {y.dim(1), product.columns});
    for_each_chunk(group.count, plan_.adapters.chunk_rows, [&](int64_t first, int64_t rows) {
      add_low_rank(rows_at(x, group.first + first, rows), a, b, 1,
                   rows_at(y, group.first + first, rows));
    });
  }
}

void Transformer::add_low_rank(const Tensor& x, const Tensor& a, const Tensor& b, double scale,
                               const Tensor& y) {
  const Tensor low = activation(plan_.adapters.low, {x.dim(0), a.dim(0)});
  ops_.matmul(x, Transpose::kNo, a, Transpose::kYes, low, Accumulate::kNo);
  if (scale != 1) ops_.scale(scale, low);
  if (y.dtype == DType::kF32)
    return ops_.matmul(low, Transpose::kNo, b, Transpose::kYes, y, Accumulate::kYes);
  const Tensor added = activation(plan_.adapters.wide, {x.dim(0), y.dim(1)});
  ops_.matmul(low, Transpose::kNo, b, Transpose::kYes, added, Accumulate::kNo);
  ops_.add(y, added, y);
}

void Transformer::adapters_backward(const DenseSite& site, const Tensor& dy, const Tensor& x,
                                    Accumulate accumulate) {
  const auto product = static_cast<size_t>(site.product);
  const Adapters& adapters = weights_->layers[site.layer].adapters[product];
  const Adapters& gradients = grads_->layers[site.layer].adapters[product];
  const LoraConfig& lora = plan_.model.lora;
  const int64_t columns = adapters.a.dim(0), out = dy.dim(1);
  const Tensor b = block_diagonal(adapters, out);
  const Tensor d_b = adapters.is_whole ? gradients.projections.front().b
                                       : view(plan_.adapters.d_b, {out, columns});
  const Tensor d_lows = activation(plan_.adapters.d_low, {rows_, columns});
  for_each_chunk(rows_, plan_.adapters.chunk_rows, [&](int64_t first, int64_t rows) {
    const Tensor in = adapter_input(site, x, first, rows), dout = rows_at(dy, first, rows);
    const Tensor low = activation(plan_.adapters.low, {rows, columns});
    ops_.matmul(in, Transpose::kNo, adapters.a, Transpose::kYes, low, Accumulate::kNo);
    ops_.scale(lora.scale(), low);
    const Accumulate begins = first == 0 ? accumulate : Accumulate::kYes;
    ops_.matmul(dout, Transpose::kYes, low, Transpose::kNo, d_b,
                first == 0 && !adapters.is_whole ? Accumulate::kNo : begins);
    const Tensor d_low = rows_at(d_lows, first, rows);
    ops_.matmul(dout, Transpose::kNo, b, Transpose::kNo, d_low, Accumulate::kNo);
    ops_.scale(lora.scale(), d_low);
    ops_.matmul(d_low, Transpose::kYes, in, Transpose::kNo, gradients.a, begins);
  });
  if (adapters.is_whole) return;
  int64_t column = 0;
  for (const Adapters::Projection& gradient : gradients.projections) {
    const int64_t height = gradient.b.dim(0);
    const Tensor from = rows_at(d_b, gradient.first_row, height);
    if (accumulate == Accumulate::kNo) {
      ops_.copy_columns(from, column, gradient.b, 0, lora.rank);
    } else {
      const Tensor part = view(plan_.adapters.b, {height, int64_t{lora.rank}});
      ops_.copy_columns(from, column, part, 0, lora.rank);
      ops_.add(gradient.b, part, gradient.b);
    }
    column += lora.rank;
  }
}

void Transformer::add_adapters_dx(const DenseSite& site, const Tensor& dx) {
  const Tensor& a = weights_->layers[site.layer].adapters[static_cast<size_t>(site.product)].a;
  const Tensor d_lows = activation(plan_.adapters.d_low, {rows_, a.dim(0)});
  if (dx.dtype == DType::kF32 && (!dropout_ || plan_.model.lora.dropout == 0))
    return ops_.matmul(d_lows, Transpose::kNo, a, Transpose::kNo, dx, Accumulate::kYes);
  for_each_chunk(rows_, plan_.adapters.chunk_rows, [&](int64_t first, int64_t rows) {
    const Tensor added = activation(plan_.adapters.wide, {rows, a.dim(1)});
    ops_.matmul(rows_at(d_lows, first, rows), Transpose::kNo, a, Transpose::kNo, added,
                Accumulate::kNo);
    adapter_dropout(site, first, added);
    const Tensor to = rows_at(dx, first, rows);
    ops_.add(to, added, to);
  });
}

}  // namespace muster::trainer
