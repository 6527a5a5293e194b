#include "trainer_core/parallel/ulysses.h"

#include "trainer_core/base/tensor_views.h"

namespace muster::trainer {

Tensor Ulysses::slice(const Tensor& local, const Tensor& staging, int half, int rank) const {
  const int64_t rows = local.dim(0), ranks = group_.size();
  return tensor_at(staging, (half * ranks + rank) * rows * local.dim(1) / ranks,
                   {rows, local.dim(1) / ranks});
}

absl::Status Ulysses::exchange(const Tensor& local, const Tensor& staging, std::string_view name) {
  const int64_t elements = local.elements();
  return group_.all_to_all(tensor_at(staging, 0, {elements}),
                           tensor_at(staging, elements, {elements}), name);
}

template <class Body>
void Ulysses::for_groups(std::span<const int64_t> groups, int rank, const Body& body) const {
  int64_t column = 0;
  for (const int64_t width : groups) {
    MUSTER_CHECK(width % group_.size() == 0)
        << "heads of width " << width << " on " << group_.size() << " ranks";
    const int64_t part = width / group_.size();
    body(column + rank * part, column / group_.size(), part);
    column += width;
  }
}

template <class Body>
void Ulysses::for_sequences(const Tensor& slice, const Tensor& whole, int rank,
                            const Body& body) const {
  const int64_t part = slice.dim(0) / batch_, length = whole.dim(0) / batch_;
  MUSTER_CHECK(part * group_.size() == length && whole.dim(1) == slice.dim(1))
      << "sequences of " << length << " in parts of " << part;
  for (int64_t b = 0; b < batch_; ++b)
    body(rows_at(slice, b * part, part), rows_at(whole, b * length + rank * part, part));
}

absl::Status Ulysses::to_heads(std::span<const int64_t> groups, const Tensor& local,
                               const Tensor& whole, const Tensor& staging, std::string_view name) {
  for (int rank = 0; rank < group_.size(); ++rank) {
    for_groups(groups, rank, [&](int64_t from, int64_t to, int64_t columns) {
      ops_.copy_columns(local, from, slice(local, staging, 0, rank), to, columns);
    });
  }
  if (absl::Status status = exchange(local, staging, name); !status.ok()) return status;
  for (int rank = 0; rank < group_.size(); ++rank) {
    for_sequences(slice(local, staging, 1, rank), whole, rank,
                  [&](const Tensor& from, const Tensor& to) { ops_.copy(from, to); });
  }
  return absl::OkStatus();
}

absl::Status Ulysses::to_positions(std::span<const int64_t> groups, const Tensor& whole,
                                   const Tensor& local, const Tensor& staging,
                                   std::string_view name) {
  for (int rank = 0; rank < group_.size(); ++rank) {
    for_sequences(slice(local, staging, 0, rank), whole, rank,
                  [&](const Tensor& to, const Tensor& from) { ops_.copy(from, to); });
  }
  if (absl::Status status = exchange(local, staging, name); !status.ok()) return status;
  for (int rank = 0; rank < group_.size(); ++rank) {
    for_groups(groups, rank, [&](int64_t to, int64_t from, int64_t columns) {
      ops_.copy_columns(slice(local, staging, 1, rank), from, local, to, columns);
    });
  }
  return absl::OkStatus();
}

}  // namespace muster::trainer
