// What goes between the stages of a pipeline: the stream behind a run of layers, (T', d) in the activations' type, to the stage that has
// the next run, and its gradient back. Ranks of two stages that have the same place along all other axes talk to each other;
// those along tensor send their own rows each.
//
// Two threads: one sends, one receives, each in the order of this stage's passes. A message is received as soon as the one
// before it has been copied to where it is read, and sent while the next passes are computed; of each kind there is one buffer each
// way. pipeline_schedule.h says why nobody waits forever. Stages use process groups of different lanes to send, so that no group
// is that of two threads: three colours do for a ring.
//
// Bytes that a rank sends in a step of M micro-batches, with n = T' d numbers of the activations' type, v chunks and p stages:
//   forward    M v n, of the last stage M (v - 1) n
//   backward   M v n, of the first stage M (v - 1) n
// over all stages 2 M (p v - 1) n (Narayanan et al., 2021, section 2.2.2: v times those without interleaving).
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

// One thread, the passes'. The first failed message is kept, and nothing works after it.
class StageMessages {
 public:
  // All outlive it. `plan` is that of this rank of the groups' mesh, whose stages are more than one.
  StageMessages(const TransformerPlan& plan, const Arena& arena, Ops& ops, ProcessGroups& groups);
  StageMessages(const StageMessages&) = delete;
  StageMessages& operator=(const StageMessages&) = delete;

  // These passes come next, all of them in this order.
  void begin(std::span<const PipelinePass> passes);
  // Whether the pass reads what another stage has made, or makes what another one reads.
  bool needs(const PipelinePass& pass) const;
  bool feeds(const PipelinePass& pass) const;
  // Waits for what the pass needs and copies it to `to` (T', d).
  void receive(const PipelinePass& pass, const Tensor& to);
  // Where the pass makes what it feeds, once the last message of its kind has left.
  Tensor outgoing(const PipelinePass& pass);
  void send(const PipelinePass& pass);
  // Waits for all that was sent.
  absl::Status finish();

  bool broken() const { return !status_.ok(); }
  // Of messages where they are sent, which is once each, since the beginning. What a receive takes has the time in it that the stage
  // before needs.
  CommTimes sent_times() const { return sender_->times(); }
  // Time for which passes waited for other stages, since the beginning.
  Duration waited() const { return receiver_->times().blocked + sender_->times().blocked; }

 private:
  // Of one kind of pass.
  struct Buffers {
    Tensor incoming, outgoing;  // (T' d)
    CommTicket received, sent;
    bool is_taken = false;  // incoming has, or will have, what is not copied yet
  };

  Buffers& buffers(PassKind kind) { return kind == PassKind::kForward ? forward_ : backward_; }
  bool is_first(const PipelinePass& pass) const;
  bool is_last(const PipelinePass& pass) const;
  // The stage `steps` behind this one in the ring.
  int stage_at(int steps) const;
  ProcessGroup& lane_of(int stage) const;
  // "micro-batch 3 chunk 1 activations send"
  std::string name_of(const PipelinePass& pass, const char* what) const;
  // Begins the receives that there is room for.
  void receive_ahead();

  const PipelinePart& part_;
  Ops& ops_;
  ProcessGroups& groups_;
  Buffers forward_, backward_;
  std::deque<PipelinePass> ahead_;  // whose messages are not being received yet
  absl::Status status_;
  std::unique_ptr<CommStream> sender_, receiver_;  // end before what their work uses
};

}  // namespace muster::trainer
