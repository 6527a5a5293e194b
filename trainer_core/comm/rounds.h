// Building blocks of collectives: exchanges of any size among some members of a group, cut into
// rounds of messages. Internal to comm.
#pragma once

#include <cstddef>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include "trainer_core/comm/buffer_view.h"
#include "trainer_core/comm/collective_trace.h"
#include "trainer_core/comm/reduce.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// Some members of a group in order, and this rank's position among them.
struct Subgroup {
  std::vector<int> members;
  int position = 0;

  int size() const { return static_cast<int>(members.size()); }
  int member(int at) const { return members[static_cast<size_t>(at)]; }
};

// Returns the slice of the subgroup's member at a position.
template <class AnyBufferView>
AnyBufferView slice_of(const AnyBufferView& data, const Subgroup& subgroup, int position) {
  const Slice slice = slice_of(data.count, position, subgroup.size());
  return data.part(slice.offset, slice.count);
}

// One rank's end of a group's channel, with the trace that counts sent bytes. One thread.
//
// Data between two ranks is cut into pieces of a size that both compute, and piece i travels in
// round i. Ranks may have different numbers of rounds: a rank stops when it has nothing left to
// send or receive.
class Rounds {
 public:
  using Out = absl::FunctionRef<ConstBufferView(int position)>;
  using In = absl::FunctionRef<BufferView(int position)>;

  // `nodes` holds the node of each member and may be empty. The references must outlive the rounds.
  Rounds(Channel& channel, CollectiveTrace& trace, int rank, const std::vector<int>& nodes)
      : channel_(channel), trace_(trace), rank_(rank), nodes_(nodes) {}

  // Whether a member sends the same memory to all others, or different memory to each.
  enum class Sends { kSame, kDifferent };

  // Sends `out(position)` to each other member of the subgroup and fills `in(position)` from it.
  // Some may be empty.
  absl::Status exchange(const Subgroup& subgroup, Sends sends, Out out, In in);
  // Combines, in the subgroup's order, what all members have for this rank into `out`.
  // `part(position)` is this rank's contribution to each member. `out` may be this rank's own part.
  absl::Status reduce(const Subgroup& subgroup, Out part, BufferView out, Reduction reduction);
  // Exchanges one message in each direction; either may be empty.
  absl::Status pass(ConstBufferView outgoing, int to, BufferView incoming, int from);

  // The same for slices: combines each member's slice of `data` into `out`; sends this member's
  // slice of `data` to all others.
  absl::Status reduce_slices(const Subgroup& subgroup, ConstBufferView data, BufferView out,
                             Reduction reduction);
  absl::Status gather_slices(const Subgroup& subgroup, BufferView data);

  // Returns the elements that one round transfers among the members of a subgroup.
  size_t block(const Subgroup& subgroup, Sends sends, DType dtype) const;

 private:
  void begin();
  void send_to(int member, ConstBufferView numbers);
  void receive_from(int member, BufferView numbers);
  absl::Status run();
  absl::Status run_combined(const Subgroup& subgroup, ConstBufferView own, BufferView out,
                            Reduction reduction);

  Channel& channel_;
  CollectiveTrace& trace_;
  int rank_;
  const std::vector<int>& nodes_;
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
  std::vector<int> from_;
  std::vector<const std::byte*> versions_;
};

}  // namespace muster::trainer
