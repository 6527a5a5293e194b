#include "trainer_core/comm/rounds.h"

#include <algorithm>
#include <array>

namespace muster::trainer {
namespace {

// Returns the part of `numbers` in the block that begins at `at`.
template <class AnyBufferView>
AnyBufferView piece(const AnyBufferView& view, size_t at, size_t block) {
  const size_t begin = std::min(at, view.count);
  return view.part(begin, std::min(block, view.count - begin));
}

}  // namespace

size_t Rounds::block(const Subgroup& subgroup, Sends sends, DType dtype) const {
  constexpr size_t kLine = 64;  // pieces begin at cache lines if the data does
  const size_t pieces =
      sends == Sends::kSame ? 1 : static_cast<size_t>(std::max(subgroup.size() - 1, 1));
  const size_t bytes = channel_.round_bytes_max(subgroup.members) / pieces / kLine * kLine;
  return std::max(bytes, kLine) / dtype_bytes(dtype);
}

absl::Status Rounds::exchange(const Subgroup& subgroup, Sends sends, Out out, In in) {
  // Begins with the next member, so that not all members write to the first one at the same time.
  const auto next = [&](int step) { return (subgroup.position + step) % subgroup.size(); };
  size_t longest = 0;
  for (int step = 1; step < subgroup.size(); ++step)
    longest = std::max({longest, out(next(step)).count, in(next(step)).count});
  const size_t size = block(subgroup, sends, in(subgroup.position).dtype);
  for (size_t at = 0; at < longest; at += size) {
    begin();
    for (int step = 1; step < subgroup.size(); ++step) {
      const int position = next(step);
      send_to(subgroup.member(position), piece(out(position), at, size));
      receive_from(subgroup.member(position), piece(in(position), at, size));
    }
    if (auto status = run(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Rounds::reduce(const Subgroup& subgroup, Out part, BufferView out,
                            Reduction reduction) {
  size_t longest = 0;
  for (int position = 0; position < subgroup.size(); ++position)
    longest = std::max(longest, part(position).count);
  const ConstBufferView own = part(subgroup.position);
  const size_t size = block(subgroup, Sends::kDifferent, own.dtype);
  for (size_t at = 0; at < longest; at += size) {
    begin();
    for (int step = 1; step < subgroup.size(); ++step) {
      const int position = (subgroup.position + step) % subgroup.size();
      send_to(subgroup.member(position), piece(part(position), at, size));
    }
    const absl::Status status =
        run_combined(subgroup, piece(own, at, size), piece(out, at, size), reduction);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Rounds::pass(ConstBufferView outgoing, int to, BufferView incoming, int from) {
  const auto block_with = [&](int member, DType dtype) {
    return block({.members = {rank_, member}}, Sends::kSame, dtype);
  };
  const size_t out = block_with(to, outgoing.dtype), in = block_with(from, incoming.dtype);
  for (size_t i = 0; i * out < outgoing.count || i * in < incoming.count; ++i) {
    begin();
    send_to(to, piece(outgoing, i * out, out));
    receive_from(from, piece(incoming, i * in, in));
    if (auto status = run(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Rounds::reduce_slices(const Subgroup& subgroup, ConstBufferView data, BufferView out,
                                   Reduction reduction) {
  return reduce(
      subgroup, [&](int position) { return slice_of(data, subgroup, position); }, out, reduction);
}

absl::Status Rounds::gather_slices(const Subgroup& subgroup, BufferView data) {
  return exchange(
      subgroup, Sends::kSame, [&](int) { return slice_of(data, subgroup, subgroup.position); },
      [&](int position) { return slice_of(data, subgroup, position); });
}

void Rounds::begin() {
  out_.clear();
  in_.clear();
}

void Rounds::send_to(int member, ConstBufferView view) {
  if (view.count == 0) return;
  out_.push_back({member, {view.data, view.bytes()}});
  trace_.add_sent(view.bytes(), !nodes_.empty() && nodes_[static_cast<size_t>(member)] !=
                                                       nodes_[static_cast<size_t>(rank_)]);
}

void Rounds::receive_from(int member, BufferView view) {
  if (view.count > 0) in_.push_back({member, {view.data, view.bytes()}});
}

absl::Status Rounds::run() {
  if (out_.empty() && in_.empty()) return absl::OkStatus();
  return channel_.exchange(out_, in_);
}

absl::Status Rounds::run_combined(const Subgroup& subgroup, ConstBufferView own, BufferView out,
                                  Reduction reduction) {
  if (own.count == 0) return run();
  from_.clear();
  for (int position = 0; position < subgroup.size(); ++position) {
    if (position != subgroup.position) from_.push_back(subgroup.member(position));
  }
  const auto combine = [&](std::span<const std::byte* const> parts) {
    const auto mine = parts.begin() + subgroup.position;
    contributions_.assign(parts.begin(), mine);
    contributions_.push_back(own.data);
    contributions_.insert(contributions_.end(), mine, parts.end());
    combine_contributions(reduction, own.dtype, contributions_, out);
  };
  return channel_.exchange_combine(out_, from_, own.bytes(), combine);
}

}  // namespace muster::trainer
