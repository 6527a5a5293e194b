// Sharded parameters, gathered block by block while a pass runs (FSDP; Zhao et al., 2023).
// Gradients that several ranks compute are summed while the pass runs:
//
//   forward  compute     E  0  1  2  End     backward  End  2  1  0  E   two layer slots alternate
//            all-gather  E  0  1  2  End     all-gather      0           layers 1 and 2 remain
//                                            scatter   End  2  1  0  E
//                                            all-reduce over data follows each scatter, last pass
//
// Everything runs on one CommStream in the order of the pass, which is the same on all ranks. A
// slot keeps its block until another block needs the slot or parameters change, which avoids
// gathering the last two layers of a forward pass again for the backward pass, and the first two of
// that for the next micro-batch.
//
// A rank's gradient shard is added to its part of the full gradient before the scatter, so
// micro-batches, and the two uses of a tied embedding, accumulate without memory of their own.
// Without sharding (data parallelism alone) gradients stay where the pass writes them and are
// all-reduced there.
//
// Shards of another type than passes read (weight_dtype, ParamBucket::gathered) are converted to
// this rank's part of the slot, in the order of the pass's operations, before they are gathered.
// That is all that a single rank does.
//
// Both ends of a pipeline have the table of a tied embedding, but reach it at different times. It
// is therefore gathered before a step's passes and scattered after them, when both ends take part.
// All other exchanges only involve ranks of one stage.
//
// Bytes that a rank sends in a step of M micro-batches at zero_stage 3, with n ranks that share L >
// 1 layers, and D along data. G is the bytes of a block's shard in the type that passes read, S in
// fp32
// (ZeRO, Rajbhandari et al., 2020, section 7, less what slots retain):
//   all-gathers      (n - 1) times   G of embedding and end, each M times where they share a slot,
//                    else once (a tied model), and of layers L + (L - 2) in the first pass and
//                    2 (L - 2) in each later one
//   reduce-scatters  (n - 1) times   S of every block M times, of a tied embedding 2 M times
//   all-reduces      2 (D - 1) / D times   S of every block
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/comm/comm_stream.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/model/parameter_blocks.h"
#include "trainer_core/model/transformer.h"

namespace muster::trainer {

// The position of a pass in its step. Gradients are summed over `data` in the last one.
struct StepPass {
  bool first = true;
  bool last = true;
};

// Called on the passes' thread only. Errors are those of collectives; the first one is kept, and
// nothing works after it.
class ShardedParameters final : public ParameterBlocks {
 public:
  // All arguments must outlive it. `plan` is the plan of this rank of the groups' mesh. `groups`
  // may be null if no other rank has a part of the model: then shards are only converted.
  ShardedParameters(const TransformerPlan& plan, const Arena& arena, Ops& ops,
                    ProcessGroups* groups);

  // Gathers the blocks of both ends. Called before the passes of a step or an evaluation in a
  // pipeline.
  void gather_ends();
  // Called before each pass that computes gradients.
  void begin(const StepPass& pass);
  // Blocks until all collectives of the passes are done. If the last pass was its step's last, the
  // flat block then has the step's gradients.
  absl::Status finish();
  // Invalidates all gathered blocks.
  void parameters_changed();
  // Times since construction.
  CommTimes times() const { return stream_->times(); }

  void prefetch(size_t block) override;
  void expect(size_t block) override;
  void acquire(size_t block) override;
  void release(size_t block) override;
  Accumulate begin_gradient(size_t block, Accumulate wanted) override;
  void gradient_done(size_t block) override;
  bool broken() const override { return !status_.ok(); }

 private:
  // Flat tensors of one bucket.
  struct Bucket {
    size_t block = 0;
    bool is_shared = false;    // else the shard is all of it
    bool is_copied = false;    // passes read a copy of it
    bool is_gathered = false;  // some bucket of its block is shared
    int64_t elements = 0;      // without padding
    Tensor shard;
    Tensor weights;      // whole and padded, where the pass reads
    Tensor own_weights;  // this rank's part of it
    Tensor gradient_shard;
    Tensor gradient;      // whole and padded, where the pass writes
    Tensor own_gradient;  // this rank's part of it
    ProcessGroup* group = nullptr;
    std::string gather_name, scatter_name, reduce_name;
    bool has_gradient = false;  // the shard, of earlier parts of the step
    CommTicket scattered;
  };
  struct Slot {
    std::optional<size_t> block;  // of the weights that it has, or will have
    CommTicket gathered;
    bool in_use = false;
  };

  Bucket make_bucket(size_t index) const;
  void wait(CommTicket ticket);
  // Returns whether `block` gets no more gradients in this step.
  bool is_complete(size_t block) const;
  // True with zero_stage 1 and for a tied embedding on both ends of a pipeline: the full gradient
  // accumulates and is scattered once.
  bool accumulates_before_scatter(size_t block) const;
  void scatter(Bucket& bucket);
  void sum_over_data(Bucket& bucket);

  const TransformerPlan& plan_;
  const Arena& arena_;
  Ops& ops_;
  ProcessGroups* groups_;         // null: a single rank
  ProcessGroup* data_ = nullptr;  // null: no other rank has the same shards
  std::vector<Bucket> buckets_;
  std::vector<Slot> weight_slots_;
  std::vector<CommTicket> gradient_slots_;  // their last scatters
  StepPass pass_;
  std::vector<int> parts_;             // finished gradients of this pass, by block
  std::vector<size_t> blocks_at_end_;  // those of both ends that are complete
  absl::Status status_;
  std::unique_ptr<CommStream> stream_;  // ends before what its work uses
};

}  // namespace muster::trainer
