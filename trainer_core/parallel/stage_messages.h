// Messages between the stages of a pipeline. A stage sends the residual stream after a run of
// layers, (T', d) in the activation type, to the stage of the next run, which sends its gradient
// back. Messages are between ranks with the same coordinates along all other axes; each tensor rank
// sends its own rows.
//
// One thread sends and one receives, each in the order of this stage's passes. Each kind of pass
// has one buffer per direction: a message is received once the previous one was copied to its
// destination, and is sent while the next passes are computed. pipeline_schedule.h explains why
// this cannot deadlock. Adjacent stages send through process groups of different channels, so that
// no group is used by two threads. Three channels suffice for a ring of any length.
//
// Data that a rank sends in a step of M micro-batches, with p stages of v chunks and messages of n
// = T' d elements of the activation type:
//   forward    M v n; the last stage M (v - 1) n
//   backward   M v n; the first stage M (v - 1) n
// All stages together send 2 M (p v - 1) n elements, about v times as many as without interleaving
// (Narayanan et al., 2021, section 2.2.2).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include <absl/status/status.h>

#include "trainer_core/comm/comm_stream.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/model/transformer.h"
#include "trainer_core/parallel/pipeline_schedule.h"

namespace muster::trainer {

// The messages of one rank. Called on the thread of the passes only. After the first error all
// calls return at once.
class StageMessages {
 public:
  // All arguments must outlive this object. `plan` must be that of this rank in the mesh of
  // `groups`, which has more than one stage.
  StageMessages(const TransformerPlan& plan, const Arena& arena, Ops& ops, ProcessGroups& groups);
  StageMessages(const StageMessages&) = delete;
  StageMessages& operator=(const StageMessages&) = delete;

  // Sets the passes that follow, in order.
  void begin(std::span<const PipelinePass> passes);
  // Return whether the pass reads the output of another stage (needs), or computes the input of
  // another stage (feeds).
  bool needs(const PipelinePass& pass) const;
  bool feeds(const PipelinePass& pass) const;
  // Blocks until the message that the pass needs has arrived, and copies it to `to` (T', d).
  void receive(const PipelinePass& pass, const Tensor& to);
  // Blocks until the previous message of the same kind was sent. Returns the buffer into which the
  // pass writes its message.
  Tensor outgoing(const PipelinePass& pass);
  // Sends the message in outgoing(pass). Does not block.
  void send(const PipelinePass& pass);
  // Blocks until all messages were sent. Returns the first error.
  absl::Status finish();

  bool broken() const { return !status_.ok(); }
  // Returns the times of sends since construction. Receives are not included, because they would
  // include the computation of the previous stage.
  CommTimes sent_times() const { return sender_->times(); }
  // Returns the time for which passes have waited for other stages since construction.
  Duration waited() const { return receiver_->times().blocked + sender_->times().blocked; }

 private:
  // The buffers of a kind of pass.
  struct Buffers {
    Tensor incoming, outgoing;  // (T', d)
    CommTicket received, sent;
    bool is_taken = false;  // `incoming` has, or is receiving, a message that is not copied yet
  };

  Buffers& buffers(PassKind kind) { return kind == PassKind::kForward ? forward_ : backward_; }
  // Return whether the pass is through the first, or the last, virtual stage.
  bool is_first(const PipelinePass& pass) const;
  bool is_last(const PipelinePass& pass) const;
  // Returns the stage that is `steps` after this one in the ring.
  int stage_at(int steps) const;
  ProcessGroup& channel_of(int stage) const;
  // Returns a name for the progress page: "micro-batch 3 chunk 1 activations send".
  std::string name_of(const PipelinePass& pass, const char* what) const;
  // Begins a receive for each free incoming buffer.
  void receive_ahead();

  const PipelinePart& part_;
  Ops& ops_;
  ProcessGroups& groups_;
  Buffers forward_, backward_;
  std::deque<PipelinePass> ahead_;  // passes whose receives have not begun yet
  absl::Status status_;
  // Last, so that they end before the objects that their work uses.
  std::unique_ptr<CommStream> sender_, receiver_;
};

}  // namespace muster::trainer
