// Messages between the stages of a pipeline: the residual stream after a run of layers, (T', d) in
// the activations' type, to the stage of the next run, and its gradient back. Ranks of two stages
// with the same coordinates along all other axes exchange messages; each tensor rank sends its own
// rows.
//
// One thread sends and one receives, each in the order of this stage's passes. A message is
// received as soon as the previous one has been copied to its destination, and sent while the next
// passes are computed; each kind and direction has one buffer. pipeline_schedule.h shows that this
// cannot deadlock. Neighbouring stages send through process groups of different channels, so that
// no group is used by two threads: three channels suffice for a ring.
//
// Bytes that a rank sends in a step of M micro-batches, with n = T' d elements of the activations'
// type, v chunks and p stages:
//   forward    M v n, of the last stage M (v - 1) n
//   backward   M v n, of the first stage M (v - 1) n
// over all stages 2 M (p v - 1) n (Narayanan et al., 2021, section 2.2.2: v times those without
// interleaving).
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

// Called on the passes' thread only. Keeps the first failed message's error; nothing works after
// it.
class StageMessages {
 public:
  // All arguments must outlive it. `plan` is the plan of this rank of the groups' mesh, which has
  // more than one stage.
  StageMessages(const TransformerPlan& plan, const Arena& arena, Ops& ops, ProcessGroups& groups);
  StageMessages(const StageMessages&) = delete;
  StageMessages& operator=(const StageMessages&) = delete;

  // Announces the passes that come next, in this order.
  void begin(std::span<const PipelinePass> passes);
  // Returns whether the pass reads another stage's output, or produces another stage's input.
  bool needs(const PipelinePass& pass) const;
  bool feeds(const PipelinePass& pass) const;
  // Waits for what the pass needs and copies it to `to` (T', d).
  void receive(const PipelinePass& pass, const Tensor& to);
  // Returns the buffer in which the pass produces its message, once the previous message of its
  // kind has left.
  Tensor outgoing(const PipelinePass& pass);
  void send(const PipelinePass& pass);
  // Blocks until everything has been sent.
  absl::Status finish();

  bool broken() const { return !status_.ok(); }
  // Times of sent messages, each counted once, since construction. The time of a receive would
  // include the previous stage's computation.
  CommTimes sent_times() const { return sender_->times(); }
  // Returns the time for which passes waited for other stages, since construction.
  Duration waited() const { return receiver_->times().blocked + sender_->times().blocked; }

 private:
  // The buffers of one kind of pass.
  struct Buffers {
    Tensor incoming, outgoing;  // (T' d)
    CommTicket received, sent;
    bool is_taken = false;  // incoming has, or will have, what is not copied yet
  };

  Buffers& buffers(PassKind kind) { return kind == PassKind::kForward ? forward_ : backward_; }
  bool is_first(const PipelinePass& pass) const;
  bool is_last(const PipelinePass& pass) const;
  // Returns the stage `steps` behind this one in the ring.
  int stage_at(int steps) const;
  ProcessGroup& channel_of(int stage) const;
  // "micro-batch 3 chunk 1 activations send"
  std::string name_of(const PipelinePass& pass, const char* what) const;
  // Begins as many receives as there is room for.
  void receive_ahead();

  const PipelinePart& part_;
  Ops& ops_;
  ProcessGroups& groups_;
  Buffers forward_, backward_;
  std::deque<PipelinePass> ahead_;  // passes whose messages are not being received yet
  absl::Status status_;
  std::unique_ptr<CommStream> sender_, receiver_;  // end before what their work uses
};

}  // namespace muster::trainer
