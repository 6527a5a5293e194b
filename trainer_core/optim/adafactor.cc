#include <algorithm>
#include <cmath>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/check.h"
#include "trainer_core/optim/optimizer_factories.h"
#include "trainer_core/optim/tensor_sums.h"

namespace muster::trainer {
namespace {

// optax.adafactor's defaults.
constexpr int64_t kFactoredDimMin = 128;
constexpr double kDecayExponent = 0.8;
constexpr double kEps = 1e-30;
constexpr double kUpdateRmsMax = 1;
constexpr double kParameterRmsMin = 1e-3;

bool is_factored(const ParamSpec& spec) {
  MUSTER_CHECK(spec.shape.size() <= 2)
      << spec.name << " has " << spec.shape.size() << " dimensions";
  return spec.shape.size() == 2 && std::min(spec.shape[0], spec.shape[1]) >= kFactoredDimMin;
}

class Adafactor : public Optimizer {
 public:
  explicit Adafactor(ShardLayout layout) : Optimizer(OptimizerType::kAdafactor, std::move(layout)) {
    for (const ParamSpec& spec : layout_.table()) add_tensors(spec);
    for (const ShardPiece& piece : layout_.pieces()) {
      if (is_factored(spec_of(piece))) {
        add_factors(piece);
      } else {
        add_elements(piece);
      }
    }
    add_blocks();
  }

 private:
  // A piece of a tensor, and the offset of its state: v, or v_row followed by v_col.
  struct Share {
    ShardPiece piece;
    int64_t state;
    std::vector<TensorBox> boxes;  // boxes of a factored matrix
  };

  // The tensors of a block of the model, whose sums are exchanged together.
  struct Block {
    Block(const ShardLayout& layout, size_t first, size_t last)
        : gradients(layout, first, last, sums_of),
          updates(layout, first, last, [](const ParamSpec&) { return 1; }) {}

    // Returns the number of sums of a tensor: of the gradient's squares by row and by column if it
    // is factored, and of the parameter's squares.
    static int64_t sums_of(const ParamSpec& spec) {
      return is_factored(spec) ? spec.shape[0] + spec.shape[1] + 1 : 1;
    }

    TensorSums gradients, updates;
    std::vector<Share> shares{};
  };

  const ParamSpec& spec_of(const ShardPiece& piece) const { return layout_.table()[piece.param]; }

  void add_tensors(const ParamSpec& spec) {
    const auto add = [&](const char* what, std::vector<int64_t> shape) {
      std::vector<TensorRow>& rows = state_.tensors;
      const int64_t offset = rows.empty() ? 0 : rows.back().offset + rows.back().elements();
      rows.push_back({absl::StrCat(what, ".", spec.name), std::move(shape), offset});
    };
    if (is_factored(spec)) {
      add("v_row", {spec.shape[0]});
      add("v_col", {spec.shape[1]});
    } else {
      add("v", spec.shape);
    }
  }

  void add_elements(const ShardPiece& piece) {
    for (TensorBox& box : layout_.boxes(piece)) {
      box.tensor = "v." + box.tensor;
      box.offset += state_elements_ - piece.offset;
      state_.held.push_back(box);
      state_.written.push_back(std::move(box));
    }
    shares_.push_back({piece, state_elements_, {}});
    state_elements_ += piece.count;
  }

  // Adds the complete factors. The rank with a row's first element writes the row's factor;
  // likewise for columns.
  void add_factors(const ShardPiece& piece) {
    const ParamSpec& spec = spec_of(piece);
    const TensorRow rows{"v_row." + spec.name, {spec.shape[0]}, state_elements_};
    const TensorRow columns{"v_col." + spec.name, {spec.shape[1]}, rows.offset + spec.shape[0]};
    state_.held.push_back(whole_box(rows));
    state_.held.push_back(whole_box(columns));
    shares_.push_back({piece, state_elements_, layout_.boxes(piece)});
    for (const TensorBox& box : shares_.back().boxes) {
      const auto write = [&](const TensorRow& row, size_t dim) {
        state_.written.push_back({row.name,
                                  row.shape,
                                  {box.begin[dim]},
                                  {box.extent[dim]},
                                  row.offset + box.begin[dim]});
      };
      if (box.begin[1] == 0) write(rows, 0);
      if (box.begin[0] == 0) write(columns, 1);
    }
    state_elements_ += spec.shape[0] + spec.shape[1];
  }

  void add_blocks() {
    const std::vector<ParamBucket>& buckets = layout_.buckets();
    size_t share = 0;
    for (size_t first = 0, last = 0; first < buckets.size(); first = last) {
      while (last < buckets.size() && buckets[last].block == buckets[first].block) ++last;
      Block& block = blocks_.emplace_back(layout_, first, last);
      for (; share < shares_.size() && shares_[share].piece.bucket < last; ++share)
        block.shares.push_back(std::move(shares_[share]));
    }
    shares_.clear();
  }

  absl::Status apply(Ops& ops, const UpdateStep& step, const UpdateBlocks& blocks,
                     SumExchange* exchange) override {
    const AdafactorStep factors{.decay = 1 - std::pow(static_cast<double>(step.t), -kDecayExponent),
                                .eps = kEps,
                                .grad_scale = step.grad_scale};
    for (Block& block : blocks_) {
      block.gradients.clear();
      for (const Share& share : block.shares) measure(ops, blocks, share, block.gradients);
      if (auto status = block.gradients.add_up(exchange); !status.ok()) return status;
      block.updates.clear();
      for (const Share& share : block.shares) {
        make_direction(ops, factors, blocks, share, block.gradients);
        block.updates.of(share.piece)[0] += ops.sum_of_squares(part(blocks.grads, share.piece));
      }
      if (auto status = block.updates.add_up(exchange); !status.ok()) return status;
      for (const Share& share : block.shares) apply_share(ops, step, blocks, share, block);
    }
    return absl::OkStatus();
  }

  // Adds the sums of squares of a piece. The last sum of a tensor is that of the parameter.
  static void measure(Ops& ops, const UpdateBlocks& blocks, const Share& share, TensorSums& to) {
    const std::span<double> sums = to.of(share.piece);
    sums.back() += ops.sum_of_squares(part(blocks.params, share.piece));
    for (const TensorBox& box : share.boxes) {
      const auto [rows, columns] = split(sums, box.shape);
      ops.add_squares(matrix(blocks.grads, box), part_of(rows, box, 0), part_of(columns, box, 1));
    }
  }

  void make_direction(Ops& ops, const AdafactorStep& step, const UpdateBlocks& blocks,
                      const Share& share, TensorSums& of) const {
    const ParamSpec& spec = spec_of(share.piece);
    if (share.boxes.empty()) {
      ops.adafactor_direction(step, part(blocks.grads, share.piece),
                              part(blocks.state, share.state, share.piece.count));
      return;
    }
    const Tensor rows = part(blocks.state, share.state, spec.shape[0]);
    const Tensor columns = part(blocks.state, share.state + spec.shape[0], spec.shape[1]);
    const auto [row_sums, column_sums] = split(of.of(share.piece), spec.shape);
    ops.adafactor_factors(step, row_sums, column_sums, rows, columns);
    for (const TensorBox& box : share.boxes) {
      ops.adafactor_factored_direction(step, matrix(blocks.grads, box), rows, box.begin[0], columns,
                                       box.begin[1]);
    }
  }

  void apply_share(Ops& ops, const UpdateStep& step, const UpdateBlocks& blocks, const Share& share,
                   Block& block) const {
    const int64_t elements = spec_of(share.piece).elements();
    const double bound =
        std::max(1.0, rms(block.updates.of(share.piece)[0], elements) / kUpdateRmsMax);
    const double scale =
        std::max(rms(block.gradients.of(share.piece).back(), elements), kParameterRmsMin);
    ops.apply_update(step.learning_rate * scale / bound, 1, part(blocks.grads, share.piece),
                     part(blocks.params, share.piece));
  }

  static Tensor matrix(std::span<float> block, const TensorBox& box) {
    return Tensor::f32(block.data() + box.offset, {box.extent[0], box.extent[1]});
  }
  static std::pair<std::span<double>, std::span<double>> split(std::span<double> sums,
                                                               const std::vector<int64_t>& shape) {
    const auto rows = static_cast<size_t>(shape[0]);
    return {sums.first(rows), sums.subspan(rows, static_cast<size_t>(shape[1]))};
  }
  static std::span<double> part_of(std::span<double> sums, const TensorBox& box, size_t dim) {
    return sums.subspan(static_cast<size_t>(box.begin[dim]), static_cast<size_t>(box.extent[dim]));
  }

  std::vector<Share> shares_;  // moved to blocks_ later
  std::vector<Block> blocks_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(ShardLayout layout) {
  return std::make_unique<Adafactor>(std::move(layout));
}

}  // namespace muster::trainer
