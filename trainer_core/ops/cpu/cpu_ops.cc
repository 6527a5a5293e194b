// The CPU backend of the op table: checks shapes and splits kernels' ranges among threads.
#include <algorithm>
#include <cstring>

#include "trainer_core/ops/cpu/checks.h"
#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/loss_ops.h"
#include "trainer_core/ops/cpu/matmul.h"
#include "trainer_core/ops/cpu/parallel.h"
#include "trainer_core/ops/cpu/sums.h"
#include "trainer_core/ops/ops.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

using cpu::add_blocks;
using cpu::check_ids;
using cpu::check_starts;
using cpu::parallel_for;
using cpu::useful_threads;

int64_t start_of(const Tensor& starts, int64_t row) {
  return starts.data == nullptr ? 0 : starts.i32()[row];
}

class CpuOps : public cpu::CpuLossOps {
 public:
  explicit CpuOps(int threads) : CpuLossOps(threads), matmul_(threads) {}

  std::string_view name() const override { return "cpu"; }

  void upload(const void* from, const Tensor& to) override {
    std::memcpy(to.data, from, to.bytes());
  }
  void download(const Tensor& from, void* to) override { std::memcpy(to, from.data, from.bytes()); }
  void synchronize() override {}

  void fill(const Tensor& x, float value) override {
    elementwise(x, [&](int64_t begin, int64_t end) {
      cpu::fill_range(x.dtype, end - begin, value, at(x, begin));
    });
  }
  void fill_normal(const NormalStream& values, int64_t first, int64_t pitch,
                   const Tensor& x) override {
    const int64_t width = x.dim(1);
    elementwise(x, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t row = begin / width, column = begin % width;
        const int64_t count = std::min(end - begin, width - column);
        trainer::fill_normal(values, first + row * pitch + column,
                             {x.f32() + begin, static_cast<size_t>(count)});
        begin += count;
      }
    });
  }
  void copy(const Tensor& from, const Tensor& to) override {
    check_size(to, from.elements(), "copy's target");
    if (from.dtype == DType::kF32 && to.dtype == DType::kBf16) return round(from, to);
    const size_t bytes = dtype_bytes(same_type({from, to}));
    elementwise(from, [&](int64_t begin, int64_t end) {
      std::memcpy(at(to, begin), at(from, begin), static_cast<size_t>(end - begin) * bytes);
    });
  }
  void add(const Tensor& x, const Tensor& delta, const Tensor& sum) override {
    check_size(delta, x.elements(), "what is added");
    check_size(sum, x.elements(), "the sum");
    const DType dtype = same_type({x, delta, sum});
    elementwise(x, [&](int64_t begin, int64_t end) {
      cpu::add_activations_range(dtype, end - begin, at(x, begin), at(delta, begin),
                                 at(sum, begin));
    });
  }
  void scale(double factor, const Tensor& x) override {
    elementwise(x, [&](int64_t begin, int64_t end) {
      cpu::scale_range(x.dtype, end - begin, static_cast<float>(factor), at(x, begin));
    });
  }
  void dropout(const DropoutMask& mask, const Tensor& x) override {
    const cpu::DropoutRows args{mask, x.dtype, x.dim(x.rank - 1), x.float_data()};
    split(rows_of(x), x.elements(),
          [&](int64_t begin, int64_t end, int) { cpu::dropout_rows(begin, end, args); });
  }
  double sum(const Tensor& x) override { return cpu::reduce(threads_, x, cpu::sum_range); }
  double sum_of_squares(const Tensor& x) override {
    return cpu::reduce(threads_, x, cpu::sum_of_squares_range);
  }

  void matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
              const Tensor& c, Accumulate accumulate) override {
    const bool ta = transpose_a == Transpose::kYes, tb = transpose_b == Transpose::kYes;
    const int64_t m = a.dim(ta ? 1 : 0), k = a.dim(ta ? 0 : 1), n = b.dim(tb ? 0 : 1);
    MUSTER_CHECK(a.rank == 2 && b.rank == 2 && c.rank == 2) << "matmul takes matrices";
    MUSTER_CHECK(b.dim(tb ? 1 : 0) == k && c.dim(0) == m && c.dim(1) == n)
        << "matmul of (" << m << ", " << k << ") by (" << b.dim(tb ? 1 : 0) << ", " << n
        << ") into (" << c.dim(0) << ", " << c.dim(1) << ")";
    matmul_.run({m, n, k, ta, tb, accumulate == Accumulate::kYes}, {a.float_data(), a.dtype},
                {b.float_data(), b.dtype}, {c.float_data(), c.dtype});
  }

  void add_bias(const Tensor& bias, const Tensor& x) override {
    const int64_t width = bias.elements();
    MUSTER_CHECK(x.elements() % width == 0) << "add_bias of " << width << " elements";
    split(x.elements() / width, x.elements(), [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        cpu::add_parameters_range(x.dtype, width, bias.f32(), at(x, row * width));
      }
    });
  }
  void bias_backward(const Tensor& dx, const Tensor& dbias, Accumulate accumulate,
                     Workspace workspace) override {
    const int64_t width = dbias.elements(), rows = dx.elements() / width;
    check_size(dx, rows * width, "dx");
    const int64_t blocks = std::min(kRowSumBlocks, rows);
    MUSTER_CHECK(workspace.elements >= blocks * width) << "workspace of bias_backward is too small";
    split(blocks, dx.elements(), [&](int64_t begin, int64_t end, int) {
      for (int64_t block = begin; block < end; ++block) {
        float* partial = workspace.data + block * width;
        std::fill_n(partial, width, 0.0F);
        for (int64_t row = rows * block / blocks; row < rows * (block + 1) / blocks; ++row) {
          cpu::add_gradients_range(dx.dtype, width, at(dx, row * width), partial);
        }
      }
    });
    add_blocks(workspace.data, blocks, width, width, accumulate, dbias.f32());
  }

  void embedding(const Tensor& tokens, const Tensor& table, const VocabularySlice& slice,
                 double scale, const Tensor& out) override {
    const int64_t width = table.dim(1);
    check_size(out, tokens.elements() * width, "embedding's output");
    check_ids(tokens, slice.ids(table.dim(0)), "token");
    MUSTER_CHECK(table.dtype == DType::kF32 || table.dtype == same_type({out}))
        << "an fp32 output of a bf16 table";
    const cpu::Embedding args{out.dtype,    table.dtype,
                              slice.first,  table.dim(0),
                              width,        static_cast<float>(scale),
                              tokens.i32(), table.float_data()};
    split(tokens.elements(), out.elements(), [&](int64_t begin, int64_t end, int) {
      cpu::embedding_rows(begin, end, args, out.float_data());
    });
  }
  void embedding_backward(const Tensor& tokens, const Tensor& dout, const VocabularySlice& slice,
                          double scale, const Tensor& dtable) override {
    const int64_t width = dtable.dim(1);
    check_size(dout, tokens.elements() * width, "embedding's gradient");
    check_ids(tokens, slice.ids(dtable.dim(0)), "token");
    const cpu::EmbeddingBackward args{
        dout.dtype,   slice.first,       dtable.dim(0), width, static_cast<float>(scale),
        tokens.i32(), dout.float_data(), dtable.f32()};
    split(width, dout.elements(), [&](int64_t begin, int64_t end, int) {
      cpu::embedding_backward_columns(begin, end, tokens.elements(), args);
    });
  }
  void add_positions(const Tensor& table, const TokenRows& rows, const Tensor& starts,
                     const Tensor& x) override {
    const int64_t width = table.dim(1), count = x.elements() / width;
    check_positions(table, rows);
    check_starts(starts, rows, count);
    split(count, x.elements(), [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t position = rows.position(row) - start_of(starts, row);
        cpu::add_parameters_range(x.dtype, width, table.f32() + position * width,
                                  at(x, row * width));
      }
    });
  }
  void positions_backward(const Tensor& dx, const TokenRows& rows, const Tensor& starts,
                          const Tensor& dtable, Accumulate accumulate) override {
    const int64_t width = dtable.dim(1), count = dx.elements() / width;
    check_positions(dtable, rows);
    check_starts(starts, rows, count);
    if (accumulate == Accumulate::kNo) fill(dtable, 0);
    split(rows.positions.end(), dx.elements(), [&](int64_t begin, int64_t end, int) {
      for (int64_t row = 0; row < count; ++row) {
        const int64_t position = rows.position(row) - start_of(starts, row);
        if (position < begin || position >= end) continue;
        cpu::add_gradients_range(dx.dtype, width, at(dx, row * width),
                                 dtable.f32() + position * width);
      }
    });
  }

  void norm(const NormShape& shape, const Tensor& x, const NormWeights& weights, const Tensor& y,
            const Tensor& stats) override {
    norm_rows(same_type({x, y}), shape, x, nullptr, weights, nullptr, y, stats);
  }
  void add_norm(const NormShape& shape, const Tensor& x, const Tensor& delta,
                const NormWeights& weights, const Tensor& sum, const Tensor& y,
                const Tensor& stats) override {
    check_size(delta, x.elements(), "delta");
    check_size(sum, x.elements(), "the residual sum");
    norm_rows(same_type({x, delta, sum, y}), shape, x, delta.data, weights, sum.data, y, stats);
  }
  void norm_backward(const NormShape& shape, const Tensor& dy, const Tensor& x,
                     const NormWeights& weights, const Tensor& stats, const Tensor& dx,
                     const NormWeights& d_weights, Accumulate accumulate,
                     Workspace workspace) override {
    const bool layer = shape.type == NormType::kLayer;
    const int64_t width = weights.gain.elements(), rows = x.elements() / width;
    check_size(dy, x.elements(), "dy");
    check_size(dx, x.elements(), "dx");
    check_size(d_weights.gain, width, "the gain's gradient");
    if (layer) check_size(d_weights.bias, width, "the bias's gradient");
    check_size(stats, shape.stats(rows), "stats");
    const int64_t blocks = std::min(kRowSumBlocks, rows);
    MUSTER_CHECK(workspace.elements >= 2 * blocks * width)
        << "workspace of norm_backward is too small";
    const auto offset = static_cast<float>(shape.gain_offset);
    const cpu::NormBackward args{
        same_type({dy, x, dx}), shape.type,  rows,   width, offset, dy.data, x.data,
        weights.gain.f32(),     stats.f32(), dx.data};
    // A block's partial sums: gain, then bias.
    split(blocks, x.elements(), [&](int64_t begin, int64_t end, int) {
      for (int64_t block = begin; block < end; ++block) {
        float* partial = workspace.data + 2 * block * width;
        std::fill_n(partial, 2 * width, 0.0F);
        cpu::norm_backward_rows(rows * block / blocks, rows * (block + 1) / blocks, args, partial,
                                partial + width);
      }
    });
    float* sums = workspace.data;
    add_blocks(sums, blocks, 2 * width, width, accumulate, d_weights.gain.f32());
    if (layer) add_blocks(sums + width, blocks, 2 * width, width, accumulate, d_weights.bias.f32());
  }

  void activate(const MlpActivation& activation, const Tensor& in, const Tensor& out) override {
    const cpu::ActivationRows args = activation_rows(activation, in, out);
    split(rows_of(out), in.elements(),
          [&](int64_t begin, int64_t end, int) { cpu::activation_rows(begin, end, args); });
  }
  void activate_backward(const MlpActivation& activation, const Tensor& dout, const Tensor& in,
                         const Tensor& d_in) override {
    check_size(d_in, in.elements(), "the activation's gradient");
    (void)same_type({in, d_in});
    cpu::ActivationRows args = activation_rows(activation, in, dout);
    args.d_in = d_in.data;
    split(rows_of(dout), in.elements(), [&](int64_t begin, int64_t end, int) {
      cpu::activation_backward_rows(begin, end, args);
    });
  }

  void copy_columns(const Tensor& from, int64_t from_column, const Tensor& to, int64_t to_column,
                    int64_t columns) override {
    const int64_t from_width = from.dim(from.rank - 1), to_width = to.dim(to.rank - 1);
    check_size(to, rows_of(from) * to_width, "copy_columns's target");
    MUSTER_CHECK(from_column >= 0 && from_column + columns <= from_width && to_column >= 0 &&
                 to_column + columns <= to_width)
        << columns << " columns from " << from_column << " of " << from_width << " to " << to_column
        << " of " << to_width;
    split(rows_of(from), rows_of(from) * columns, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        cpu::convert_range(columns, from.dtype, at(from, row * from_width + from_column), to.dtype,
                           at(to, row * to_width + to_column));
      }
    });
  }

 private:
  void round(const Tensor& from, const Tensor& to) {
    elementwise(from, [in = from.f32(), out = static_cast<Bf16*>(to.data)](int64_t i, int64_t end) {
      for (; i < end; ++i) out[i] = Bf16::round(in[i]);
    });
  }
  static void* at(const Tensor& x, int64_t element) {
    return static_cast<char*>(x.float_data()) +
           element * static_cast<int64_t>(dtype_bytes(x.dtype));
  }

  // Splits `items` of `elements` of work in all.
  template <class Body>
  void split(int64_t items, int64_t elements, const Body& body) {
    parallel_for(useful_threads(threads_, elements), items, body);
  }
  template <class Body>
  void elementwise(const Tensor& x, const Body& body) {
    split(x.elements(), x.elements(), [&](int64_t begin, int64_t end, int) { body(begin, end); });
  }

  void norm_rows(DType dtype, const NormShape& shape, const Tensor& x, const void* delta,
                 const NormWeights& weights, void* sum, const Tensor& y, const Tensor& stats) {
    const int64_t width = weights.gain.elements(), rows = x.elements() / width;
    check_size(y, x.elements(), "the norm's output");
    check_size(stats, shape.stats(rows), "stats");
    const bool layer = shape.type == NormType::kLayer;
    if (layer) check_size(weights.bias, width, "the norm's bias");
    const cpu::NormForward args{dtype,
                                shape.type,
                                rows,
                                width,
                                static_cast<float>(shape.eps),
                                static_cast<float>(shape.gain_offset),
                                x.data,
                                delta,
                                weights.gain.f32(),
                                layer ? weights.bias.f32() : nullptr,
                                sum,
                                y.data,
                                stats.f32()};
    split(rows, x.elements(),
          [&](int64_t begin, int64_t end, int) { cpu::norm_rows(begin, end, args); });
  }

  static cpu::ActivationRows activation_rows(const MlpActivation& activation, const Tensor& in,
                                             const Tensor& out) {
    const int64_t width = out.dim(out.rank - 1);
    check_size(in, rows_of(out) * activation.input_width(width), "the activation's input");
    return {.dtype = same_type({in, out}),
            .kind = activation.kind,
            .gated = activation.gated,
            .width = width,
            .in_width = activation.input_width(width),
            .in = in.data,
            .out = out.data,
            .d_in = nullptr};
  }

  cpu::Matmul matmul_;
};

}  // namespace

std::unique_ptr<Ops> cpu_ops(int threads) {
  MUSTER_CHECK(threads >= 1) << threads << " threads";
#ifndef _OPENMP
  threads = 1;  // the thread sanitizer's build
#endif
  return std::make_unique<CpuOps>(threads);
}

}  // namespace muster::trainer
