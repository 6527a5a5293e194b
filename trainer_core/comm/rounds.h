// The building blocks of collectives: exchanges of data of any size among some members of a group,
// divided into rounds of messages. Internal to comm.
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

// Some members of a group, in order, and the position of this rank among them.
struct Subgroup {
  std::vector<int> members;  // indices of the group's members
  int position = 0;          // index of this rank in `members`

  int size() const { return static_cast<int>(members.size()); }
  int member(int at) const { return members[static_cast<size_t>(at)]; }
};

// Returns the slice of `data` for the subgroup's member at `position`.
template <class AnyBufferView>
AnyBufferView slice_of(const AnyBufferView& data, const Subgroup& subgroup, int position) {
  const Slice slice = slice_of(data.count, position, subgroup.size());
  return data.part(slice.offset, slice.count);
}

// One rank's end of the channel of a group, with the trace that counts sent bytes. Called on one
// thread at a time.
//
// Data between two ranks is divided into pieces whose size both ranks compute; piece i is sent in
// round i. Ranks may have different numbers of rounds: a rank stops when it has nothing left to
// send or receive. A `position` is an index into the members of a subgroup.
class Rounds {
 public:
  using Out = absl::FunctionRef<ConstBufferView(int position)>;
  using In = absl::FunctionRef<BufferView(int position)>;

  // `nodes` has the node of each member of the group; empty: all are on one node. All arguments
  // must outlive this object.
  Rounds(Channel& channel, CollectiveTrace& trace, int rank, const std::vector<int>& nodes)
      : channel_(channel), trace_(trace), rank_(rank), nodes_(nodes) {}

  // Whether a member sends the same memory to all other members, or different memory to each.
  enum class Sends { kSame, kDifferent };

  // Sends `out(position)` to each other member of the subgroup, and receives `in(position)` from
  // it. Any of these buffers may be empty.
  absl::Status exchange(const Subgroup& subgroup, Sends sends, Out out, In in);
  // Combines, in the order of the subgroup, the contributions of all members to this rank and
  // stores the result in `out`. `part(position)` is this rank's contribution to the result of each
  // member. `out` may be the same memory as this rank's contribution to itself.
  absl::Status reduce(const Subgroup& subgroup, Out part, BufferView out, Reduction reduction);
  // Sends `outgoing` to member `to` and receives `incoming` from member `from`. Either may be
  // empty.
  absl::Status pass(ConstBufferView outgoing, int to, BufferView incoming, int from);

  // Apply reduce() and exchange() to slices of `data`, one per member. reduce_slices() combines all
  // members' contributions to this rank's slice into `out`; gather_slices() sends this rank's slice
  // to all others and receives theirs.
  absl::Status reduce_slices(const Subgroup& subgroup, ConstBufferView data, BufferView out,
                             Reduction reduction);
  absl::Status gather_slices(const Subgroup& subgroup, BufferView data);

  // Returns the maximum number of elements per piece, and so per message, in exchanges of the
  // subgroup.
  size_t block(const Subgroup& subgroup, Sends sends, DType dtype) const;

 private:
  void begin();
  void send_to(int member, ConstBufferView view);
  void receive_from(int member, BufferView view);
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
  std::vector<const std::byte*> contributions_;
};

}  // namespace muster::trainer
