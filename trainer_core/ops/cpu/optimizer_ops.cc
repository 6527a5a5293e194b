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
    adam_range(end - begin, step, grads.f32() + begin, params.f32() + begin, m.f32() + begin,
               v.f32() + begin);
  });
}

void OptimizerOps::adam_direction(const AdamStep& step, const Tensor& grads, const Tensor& m,
                                  const Tensor& v) {
  check_same_size(m, grads, "m");
  check_same_size(v, grads, "v");
  elementwise(threads_, grads, [&](int64_t begin, int64_t end) {
    adam_direction_range(end - begin, step, grads.f32() + begin, m.f32() + begin, v.f32() + begin);
  });
}

void OptimizerOps::adafactor_direction(const AdafactorStep& step, const Tensor& grads,
                                       const Tensor& v) {
  check_same_size(v, grads, "v");
  elementwise(threads_, grads, [&](int64_t begin, int64_t end) {
    adafactor_range(end - begin, step, grads.f32() + begin, v.f32() + begin);
  });
}

void OptimizerOps::adafactor_factored_direction(const AdafactorStep& step, const Tensor& grads,
                                                const Tensor& rows, const Tensor& columns) {
  MUSTER_CHECK(grads.rank == 2 && rows.elements() == grads.dim(0) &&
               columns.elements() == grads.dim(1))
      << "factors of " << rows.elements() << " and " << columns.elements();
  const Factored args{.rows = grads.dim(0),
                      .width = grads.dim(1),
                      .step = step,
                      .grads = grads.f32(),
                      .row_means = rows.f32(),
                      .column_means = columns.f32()};
  const int useful = useful_threads(threads_, grads.elements());
  parallel_for(useful, args.rows,
               [&](int64_t begin, int64_t end, int) { factored_row_means(begin, end, args); });
  parallel_for(useful, args.width,
               [&](int64_t begin, int64_t end, int) { factored_column_means(begin, end, args); });
  const double mean = sum_range(args.rows, args.row_means) / static_cast<double>(args.rows);
  parallel_for(useful, args.rows, [&](int64_t begin, int64_t end, int) {
    factored_direction_rows(begin, end, mean, args);
  });
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
