// The checks of the arguments of quantize_ops.inc (op_checks.cc has the others).
#include "trainer_core/ops/ops.h"
#include "trainer_core/ops/shape_checks.h"

namespace muster::trainer {
namespace {

int64_t scales_of(const Tensor& x, ScaleOf of) {
  switch (of) {
    case ScaleOf::kTensor:
      return 1;
    case ScaleOf::kRow:
      return rows_of(x);
    case ScaleOf::kColumn:
      return x.dim(x.rank - 1);
  }
  return 0;
}

}  // namespace

namespace op_checks {

void abs_max(const Tensor& x, ScaleOf of, const Tensor& amax, Accumulate /*accumulate*/) {
  (void)same_type({x});
  check_size(amax, scales_of(x, of), "amax");
}
void current_scale(NumberGrid /*grid*/, const Tensor& amax, const Tensor& scale) {
  check_size(scale, amax.elements(), "scale");
}
void delayed_scale(const Tensor& amax, const Tensor& history, const Tensor& scale) {
  constexpr int64_t kOperands = 3;
  const int64_t scales = amax.elements();
  MUSTER_CHECK(scales % kOperands == 0 && scales > 0) << scales << " scales";
  check_size(scale, scales, "scale");
  check_size(history, scales * (history.elements() / scales), "history");
}
void quantize(NumberGrid /*grid*/, const Tensor& x, ScaleOf of, const Tensor& scale,
              const std::optional<RoundingNoise>& /*noise*/, const Tensor& out) {
  check_size(scale, scales_of(x, of), "scale");
  check_size(out, x.elements(), "the rounded elements");
}
void dequantize(const Tensor& product, const Tensor& row_scale, const Tensor& column_scale,
                const Tensor& out, Accumulate /*accumulate*/) {
  check_size(product, out.elements(), "the product");
  check_size(row_scale, row_scale.elements() == 1 ? 1 : rows_of(out), "the rows' scales");
  check_size(column_scale, column_scale.elements() == 1 ? 1 : out.dim(out.rank - 1),
             "the columns' scales");
  (void)same_type({product, out});
}

void decode_weights(const WeightBlocks& blocks, const Tensor& out) {
  const int64_t elements = out.elements();
  MUSTER_CHECK(blocks.type != WeightType::kPlain && elements % kWeightBlock == 0)
      << elements << " weights in blocks";
  check_size(blocks.codes, code_bytes(blocks.type, elements), "codes");
  check_size(blocks.scales, elements / kWeightBlock, "scales");
  (void)same_type({out});
}

}  // namespace op_checks
}  // namespace muster::trainer
