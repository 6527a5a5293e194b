// Sharded parameters, as in FSDP (Zhao et al., 2023): blocks are gathered one after the other while
// a pass runs, and gradients that several ranks compute are summed meanwhile. In this example of
// three layers, E is the embedding and End the last block:
//
//   forward  compute     E  0  1  2  End     backward  End  2  1  0  E   two layer slots alternate
//            all-gather  E  0  1  2  End     all-gather      0           layers 1 and 2 remain
//                                            scatter   End  2  1  0  E
//                                            In a step's last pass, an all-reduce over the data
//                                            axis follows each scatter.
//
// All collectives run on one CommStream in the order of the pass, which is the same on all ranks. A
// slot (block_memory.h) retains its block until another block needs the slot or the parameters
// change. So the backward pass need not gather the last two layers of the forward pass again, and
// the next micro-batch need not gather the first two layers.
//
// Before a reduce-scatter, a rank adds its gradient shard to its part of the complete gradient. So
// micro-batches, and the two uses of a tied embedding, accumulate without additional memory.
// Without sharding (data parallelism alone), gradients are all-reduced in the buffer into which the
// pass writes them.
//
// Shards of another type than passes read (weight_dtype, lora_weight_qtype, ParamBucket::gathered)
// are converted to this rank's part of the slot before they are gathered, in the order of the
// pass's operations. On a single rank this conversion is the only step.
//
// Both ends of a pipeline have the table of a tied embedding, but use it at different times. So it
// is gathered before the passes of a step, and its gradient is scattered after them, when both ends
// can take part. All other exchanges involve only ranks of one stage.
//
// Bytes that a rank sends in a step of M micro-batches at zero_stage 3, if n ranks share L > 1
// layers and the data axis has D ranks. G is the bytes of a block's shard in the type that passes
// read, and S its bytes in fp32. (ZeRO, Rajbhandari et al., 2020, section 7, minus the gathers that
// slots avoid.)
//   all-gathers      (n - 1) times the sum of
//                      embedding       M G; with a tied embedding G
//                      end             the same: without a tied embedding the two share a slot
//                      layers          G of 2 L - 2 layers in the first micro-batch, and of
//                                      2 (L - 2) layers in each later one
//   reduce-scatters  (n - 1) times the sum of
//                      each block      M S
//                      tied embedding  2 M S, because it has two uses
//   all-reduces      2 (D - 1) / D times the sum of S of all blocks
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

// The position of a pass in its step. Gradients are summed over the data axis in the last pass.
struct PassPosition {
  bool first = true;
  bool last = true;
};

// The parameters of one rank. Called on the thread of the passes only. After the first error of a
// collective all calls return at once.
class ShardedParameters final : public ParameterBlocks {
 public:
  // All arguments must outlive this object. `plan` must be that of this rank in the mesh of
  // `groups`. `groups` is null if no other rank has a part of the model: then shards are only
  // converted.
  ShardedParameters(const TransformerPlan& plan, const Arena& arena, Ops& ops,
                    ProcessGroups* groups);

  // Gathers the table of a tied embedding that both ends of a pipeline use. Called in a pipeline,
  // before the passes of a step or an evaluation.
  void gather_ends();
  // Begins a pass that computes gradients. Called before each such pass.
  void begin(const PassPosition& pass);
  // Blocks until all collectives of the passes are done. After the last pass of a step, the flat
  // block of gradients then has the gradients of the step. Returns the first error.
  absl::Status finish();
  // Invalidates all gathered blocks. Called after parameters have changed.
  void parameters_changed();
  // Makes later passes read the reference model (Sharding::has_reference), or the trained one.
  void read_reference(bool reference);
  // Returns the times of collectives since construction.
  CommTimes times() const { return stream_->times(); }

  void prefetch(size_t block) override;
  void expect(size_t block) override;
  void acquire(size_t block) override;
  void release(size_t block) override;
  Accumulate begin_gradient(size_t block, Accumulate wanted) override;
  void gradient_done(size_t block) override;
  bool broken() const override { return !status_.ok(); }

 private:
  // A bucket and its flat tensors.
  struct Bucket {
    size_t block = 0;
    bool is_frozen = false;  // it has no gradient
    bool is_shared = false;  // several ranks share it; false: the shard is the complete bucket
    bool block_is_gathered = false;  // a bucket of its block is shared
    int64_t elements = 0;            // without padding
    Tensor shard;
    WeightBlocks blocks;     // the shard, if it is stored in blocks
    Tensor reference_shard;  // the same tensor if the parameters are frozen
    Tensor weights;          // complete and padded, where a pass reads it
    Tensor own_weights;      // this rank's part of `weights`
    Tensor gradient_shard;
    Tensor gradient;      // complete and padded; the pass writes it
    Tensor own_gradient;  // this rank's part of `gradient`
    ProcessGroup* group = nullptr;
    std::string gather_name, scatter_name, reduce_name;
    bool has_gradient = false;  // gradient_shard has gradients of earlier parts of the step
    CommTicket scattered;
  };
  struct Slot {
    std::optional<size_t> block;  // block whose weights it has, or is about to receive
    CommTicket gathered;          // done when the weights have arrived
    bool in_use = false;          // between acquire() and release()
  };

  Bucket make_bucket(size_t index, ParamPart part) const;
  void wait(CommTicket ticket);
  // Returns whether the gradient of `block` is complete in this step.
  bool is_complete(size_t block) const;
  // Returns whether the complete gradient accumulates over the passes of a step and is scattered
  // once: with zero_stage 1, and for a tied embedding on both ends of a pipeline.
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
  std::vector<CommTicket> gradient_slots_;  // last scatter of each slot
  bool reads_reference_ = false;
  PassPosition pass_;
  std::vector<int> parts_;             // number of finished gradients of each block in this pass
  std::vector<size_t> blocks_at_end_;  // complete blocks of both ends, which finish() scatters
  absl::Status status_;
  // Last, so that it ends before the objects that its work uses.
  std::unique_ptr<CommStream> stream_;
};

}  // namespace muster::trainer
