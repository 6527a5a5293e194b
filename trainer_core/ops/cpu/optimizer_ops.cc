#include "trainer_core/ops/cpu/optimizer_ops.h"

#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/parallel.h"

namespace muster::trainer::cpu {
namespace {

void check_same_size(const Tensor& x, const Tensor& grads, const char* what) {
  MUSTER_CHECK(x.elements() == grads.elements())
      << what << " has " << x.elements() << " elements, not " << grads.elements();
}

// body(begin, end) for ranges of x.
template <class Body>
void elementwise(int threads, const Tensor& x, const Body& body) {
  parallel_for(useful_threads(threads, x.elements()), x.elements(),
               [&](int64_t begin, int64_t end, int) { body(begin, end); });
}

}  // namespace

void OptimizerOps::adam(const AdamStep& step, const Tensor& grads, const Tensor& params,
                        const Tensor& m, const Tensor& v) {
  check_same_size(params, grads, "params");
  check_same_size(m, grads, "m");
  check_same_size(v, grads, "v");
  elementwise(threads_, grads, [&](int64_t begin, int64_t end) {
    adam_range(begin, end, step, grads.f32(), params.f32(), m, v.f32());
  });
}

void OptimizerOps::adam_direction(const AdamStep& step, const Tensor& grads, const Tensor& m,
                                  const Tensor& v) {
  check_same_size(m, grads, "m");
  check_same_size(v, grads, "v");
  elementwise(threads_, grads, [&](int64_t begin, int64_t end) {
    adam_direction_range(begin, end, step, grads.f32(), m, v.f32());
  });
}

void OptimizerOps::adafactor_direction(const AdafactorStep& step, const Tensor& grads,
                                       const Tensor& v) {
  check_same_size(v, grads, "v");
  elementwise(threads_, grads, [&](int64_t begin, int64_t end) {
    adafactor_range(end - begin, step, grads.f32() + begin, v.f32() + begin);
  });
}

void OptimizerOps::add_squares(const Tensor& x, std::span<double> rows, std::span<double> columns) {
  MUSTER_CHECK(x.rank == 2 && x.dim(0) == static_cast<int64_t>(rows.size()) &&
               x.dim(1) == static_cast<int64_t>(columns.size()))
      << "sums of " << rows.size() << " and " << columns.size();
  const Squares args{.rows = x.dim(0),
                     .width = x.dim(1),
                     .x = x.f32(),
                     .row_sums = rows.data(),
                     .column_sums = columns.data()};
  const int useful = useful_threads(threads_, x.elements());
  parallel_for(useful, args.rows,
               [&](int64_t begin, int64_t end, int) { add_row_squares(begin, end, args); });
  parallel_for(useful, args.width,
               [&](int64_t begin, int64_t end, int) { add_column_squares(begin, end, args); });
}

void OptimizerOps::adafactor_factors(const AdafactorStep& step, std::span<const double> row_sums,
                                     std::span<const double> column_sums, const Tensor& rows,
                                     const Tensor& columns) {
  MUSTER_CHECK(rows.elements() == static_cast<int64_t>(row_sums.size()) &&
               columns.elements() == static_cast<int64_t>(column_sums.size()))
      << "factors of " << rows.elements() << " and " << columns.elements();
  row_factors(step, columns.elements(), row_sums, rows.f32());
  column_factors(step, rows.elements(), column_sums, columns.f32());
}

void OptimizerOps::adafactor_factored_direction(const AdafactorStep& step, const Tensor& grads,
                                                const Tensor& rows, int64_t first_row,
                                                const Tensor& columns, int64_t first_column) {
  MUSTER_CHECK(grads.rank == 2 && first_row + grads.dim(0) <= rows.elements() &&
               first_column + grads.dim(1) <= columns.elements())
      << "factors of " << rows.elements() << " and " << columns.elements();
  const FactoredDirection args{
      .width = grads.dim(1),
      .step = step,
      .mean = sum_range(rows.elements(), rows.f32()) / static_cast<double>(rows.elements()),
      .grads = grads.f32(),
      .row_means = rows.f32() + first_row,
      .column_means = columns.f32() + first_column};
  parallel_for(useful_threads(threads_, grads.elements()), grads.dim(0),
               [&](int64_t begin, int64_t end, int) { factored_direction_rows(begin, end, args); });
}

void OptimizerOps::apply_update(double rate, double kept, const Tensor& direction,
                                const Tensor& params) {
  check_same_size(params, direction, "params");
  elementwise(threads_, params, [&](int64_t begin, int64_t end) {
    apply_update_range(end - begin, static_cast<float>(rate), static_cast<float>(kept),
                       direction.f32() + begin, params.f32() + begin);
  });
}

}  // namespace muster::trainer::cpu
