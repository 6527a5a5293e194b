// What collectives consist of: exchanges among some members of a group, of any size, cut into rounds of messages. Internal to comm.
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

// Some members of a group in their order, and this rank's place among them.
struct Subgroup {
  std::vector<int> members;
  int place = 0;

  int size() const { return static_cast<int>(members.size()); }
  int member(int at) const { return members[static_cast<size_t>(at)]; }
};

// The slice of the circle's member at a place.
template <class AnyBufferView>
AnyBufferView slice_of(const AnyBufferView& data, const Subgroup& subgroup, int place) {
  const Slice slice = slice_of(data.count, place, subgroup.size());
  return data.part(slice.offset, slice.count);
}

// One rank's end of a group's channel, with the trace that counts what is sent. One thread.
//
// What a rank sends to another is cut into pieces of a size that both know, and piece i goes in round i. Ranks need not have
// equally many rounds: who has nothing more to send or to receive has no more of them.
class Rounds {
 public:
  using Out = absl::FunctionRef<ConstBufferView(int place)>;
  using In = absl::FunctionRef<BufferView(int place)>;

  // `nodes` of the members, which may be empty; the references outlive the rounds.
  Rounds(Channel& channel, CollectiveTrace& trace, int rank, const std::vector<int>& nodes)
      : channel_(channel), trace_(trace), rank_(rank), nodes_(nodes) {}

  // Whether a member sends one piece of memory to all, or others to each.
  enum class Sends { kSame, kDifferent };

  // Sends `out(place)` to each other member of the circle, and fills `in(place)` from it. Some may be empty.
  absl::Status exchange(const Subgroup& subgroup, Sends sends, Out out, In in);
  // `out` becomes the combination, in the circle's order, of what all members have for this rank: `part(place)` is what this
  // rank has for each. `out` may be its own part.
  absl::Status reduce(const Subgroup& subgroup, Out part, BufferView out, Reduction reduction);
  // A message each way, either of which may be empty.
  absl::Status pass(ConstBufferView outgoing, int to, BufferView incoming, int from);

  // The same of slices: each member's slice of `data` is combined into `out`; each member's slice of `data` goes to all.
  absl::Status reduce_slices(const Subgroup& subgroup, ConstBufferView data, BufferView out,
                             Reduction reduction);
  absl::Status gather_slices(const Subgroup& subgroup, BufferView data);

  // Elements that a round takes among the members of a circle.
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
