#include "trainer_core/comm/rounds.h"

#include <algorithm>
#include <array>

namespace muster::trainer {
namespace {

// What of `numbers` is in the block that begins at `at`.
template <class AnyNumbers>
AnyNumbers piece(const AnyNumbers& numbers, size_t at, size_t block) {
  const size_t begin = std::min(at, numbers.count);
  return numbers.part(begin, std::min(block, numbers.count - begin));
}

}  // namespace

size_t Rounds::block(const Circle& circle, Sends sends, DType dtype) const {
  constexpr size_t kLine = 64;  // pieces begin where cache lines do, if their data does
  const size_t pieces =
      sends == Sends::kSame ? 1 : static_cast<size_t>(std::max(circle.size() - 1, 1));
  const size_t bytes = channel_.round_bytes_max(circle.members) / pieces / kLine * kLine;
  return std::max(bytes, kLine) / dtype_bytes(dtype);
}

absl::Status Rounds::exchange(const Circle& circle, Sends sends, Out out, In in) {
  // Begins with the next member, so that not everyone writes to the first.
  const auto next = [&](int step) { return (circle.place + step) % circle.size(); };
  size_t longest = 0;
  for (int step = 1; step < circle.size(); ++step)
    longest = std::max({longest, out(next(step)).count, in(next(step)).count});
  const size_t size = block(circle, sends, in(circle.place).dtype);
  for (size_t at = 0; at < longest; at += size) {
    begin();
    for (int step = 1; step < circle.size(); ++step) {
      const int place = next(step);
      send_to(circle.member(place), piece(out(place), at, size));
      receive_from(circle.member(place), piece(in(place), at, size));
    }
    if (auto status = run(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Rounds::reduce(const Circle& circle, Out part, Numbers out, Reduction reduction) {
  size_t longest = 0;
  for (int place = 0; place < circle.size(); ++place)
    longest = std::max(longest, part(place).count);
  const ConstNumbers own = part(circle.place);
  const size_t size = block(circle, Sends::kDifferent, own.dtype);
  for (size_t at = 0; at < longest; at += size) {
    begin();
    for (int step = 1; step < circle.size(); ++step) {
      const int place = (circle.place + step) % circle.size();
      send_to(circle.member(place), piece(part(place), at, size));
    }
    const absl::Status status =
        run_combined(circle, piece(own, at, size), piece(out, at, size), reduction);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Rounds::pass(ConstNumbers outgoing, int to, Numbers incoming, int from) {
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

absl::Status Rounds::reduce_slices(const Circle& circle, ConstNumbers data, Numbers out,
                                   Reduction reduction) {
  return reduce(
      circle, [&](int place) { return slice_of(data, circle, place); }, out, reduction);
}

absl::Status Rounds::gather_slices(const Circle& circle, Numbers data) {
  return exchange(
      circle, Sends::kSame, [&](int) { return slice_of(data, circle, circle.place); },
      [&](int place) { return slice_of(data, circle, place); });
}

void Rounds::begin() {
  out_.clear();
  in_.clear();
}

void Rounds::send_to(int member, ConstNumbers numbers) {
  if (numbers.count == 0) return;
  out_.push_back({member, {numbers.data, numbers.bytes()}});
  trace_.add_sent(numbers.bytes(), !nodes_.empty() && nodes_[static_cast<size_t>(member)] !=
                                                          nodes_[static_cast<size_t>(rank_)]);
}

void Rounds::receive_from(int member, Numbers numbers) {
  if (numbers.count > 0) in_.push_back({member, {numbers.data, numbers.bytes()}});
}

absl::Status Rounds::run() {
  if (out_.empty() && in_.empty()) return absl::OkStatus();
  return channel_.exchange(out_, in_);
}

absl::Status Rounds::run_combined(const Circle& circle, ConstNumbers own, Numbers out,
                                  Reduction reduction) {
  if (own.count == 0) return run();
  from_.clear();
  for (int place = 0; place < circle.size(); ++place) {
    if (place != circle.place) from_.push_back(circle.member(place));
  }
  const auto combine = [&](std::span<const std::byte* const> parts) {
    const auto mine = parts.begin() + circle.place;
    versions_.assign(parts.begin(), mine);
    versions_.push_back(own.data);
    versions_.insert(versions_.end(), mine, parts.end());
    combine_versions(reduction, own.dtype, versions_, out);
  };
  return channel_.exchange_combine(out_, from_, own.bytes(), combine);
}

}  // namespace muster::trainer
