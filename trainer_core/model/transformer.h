// The forward and backward passes of a decoder-only transformer, hand-written, over a static memory
// plan. ModelConfig selects the model family. Every layer is x += attention(norm(x)); x +=
// mlp(norm(x)). In a parallel block it is x += attention(n) + mlp(n) with n = norm(x).
//
// Dimensions: B sequences per micro-batch, S tokens per sequence, T = B S tokens, d = emb_dim, H
// query heads, K key/value heads, h = head_dim, m = mlp_dim, L layers, V vocabulary ids. If several
// ranks split a dimension (rank_part.h), H, K, m, V and S are this rank's share. T' is the number
// of rows of the residual stream that this rank stores, and T* the number of tokens of the complete
// sequences. On a single rank T' = T = T*.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <absl/functional/function_ref.h>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/target_score.h"
#include "trainer_core/base/tensor.h"
#include "trainer_core/model/batch.h"
#include "trainer_core/model/decode_batch.h"
#include "trainer_core/model/model_exchange.h"
#include "trainer_core/model/parameter_blocks.h"
#include "trainer_core/model/pass_observer.h"
#include "trainer_core/model/replayed_exchange.h"
#include "trainer_core/model/transformer_plan.h"
#include "trainer_core/ops/ops.h"
#include "trainer_core/ops/replay.h"

namespace muster::trainer {

// The sums of losses over targets.
struct LossSum {
  // Sum over targets of weight * (cross-entropy + z-loss), in nats, plus `balance`.
  double loss = 0;
  double weight = 0;  // sum of weights
  // The next three fields are sums over all layers with experts. `balance` is the sum over routing
  // groups (RoutingShape::groups) of the load-balancing loss times the group's sum of weights.
  double balance = 0;
  int64_t routed = 0;   // choices of experts: tokens times experts per token
  int64_t dropped = 0;  // choices whose expert was full

  LossSum& operator+=(const LossSum& other) {
    loss += other.loss;
    weight += other.weight;
    balance += other.balance;
    routed += other.routed;
    dropped += other.dropped;
    return *this;
  }
};

// The model of one rank. Not thread-safe; its ops may use several threads internally. Allocates
// nothing after the construction, except what cpu_ops() documents for GEMMs, so the peak memory of
// a step is that of its plan. Requires token ids in [0, V), which the data loader checks.
class Transformer {
 public:
  // All arguments must outlive the model. Requires an arena made from plan.memory; `blocks` if the
  // plan's layout gathers parameters; and `exchange` if the rank computes only a part of the model.
  Transformer(const TransformerPlan& plan, Arena& arena, Ops& ops,
              ParameterBlocks* blocks = nullptr, ModelExchange* exchange = nullptr);
  ~Transformer();
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  // Returns the loss of the batch. Computes no gradients, and no dropout but in_forward.
  LossSum forward(const Batch& batch);
  // Returns the loss of the batch, with dropout, and writes the gradient of the summed losses to
  // the gradient block. Accumulate::kYes adds it to the gradients of earlier batches instead. The
  // gradients are not normalized: the caller scales them by 1 / (total weight) once the weight over
  // all batches and ranks is known. Requires a training plan. If `blocks` or `exchange` fails, a
  // pass ends early and its results are undefined.
  LossSum forward_backward(const Batch& batch, Accumulate accumulate = Accumulate::kNo);

  // The functions below are the parts of forward_backward() for the stages of a pipeline. A
  // LayerRun is a sequence of consecutive layers that a rank computes together. A micro-batch
  // passes forward through the LayerRuns of all stages, and its gradient backward through them.
  // Between a run's two passes no other micro-batch may use its slot, which is a set of activation
  // buffers (stage_plan.h). The backward pass of the last run must directly follow its forward
  // pass.

  // Prepares the recording of magnitudes (amaxes()). Called before the first pass of a step.
  void reset_amaxes();
  // Runs the forward pass and returns the load-balancing losses of the run's layers. Requires that
  // entrance(run) contains the residual stream, unless the run begins the model.
  LossSum forward_run(const LayerRun& run, const Batch& batch);
  // Runs the backward pass. On entry, stream_gradient() has the gradient of the run's output; on
  // return, that of its input. The last run computes the gradient of its output itself, from the
  // loss of the targets, and returns this loss.
  LossSum backward_run(const LayerRun& run, const Batch& batch, Accumulate accumulate);
  // Runs the forward pass without gradients and dropout, and returns the same as forward_run(). The
  // result of the last run includes the loss of the targets.
  LossSum evaluate_run(const LayerRun& run, const Batch& batch);
  // Makes later calls of forward() and evaluate_run() append the score of each target of this
  // rank's T' rows, in their order, to `scores`; null: they append nothing.
  void set_scores(std::vector<TargetScore>* scores) { scores_ = scores; }
  // Makes later passes read the reference model (Sharding::has_reference), or the trained one.
  void read_reference(bool reference);
  // Returns the buffer of the residual stream at the entrance of a run, (T', d).
  Tensor entrance(const LayerRun& run) const;
  // Writes the residual stream at the end of the last executed run to `exit` (T', d). Requires that
  // this run does not end the model.
  void leave_run(const Tensor& exit);
  // Returns the buffer of the gradient of the residual stream, (T', d).
  Tensor stream_gradient() const;
  // Announces the first block of the next pass, so that it is gathered early; nullopt: it is
  // available already.
  void expect(std::optional<size_t> block);
  // Announces the first block of the pass after the next one. It is gathered during the last layer
  // of the next pass.
  void expect_after_next(std::optional<size_t> block) { block_after_pass_ = block; }

  // Computes the logits of every position of `tokens` (B, S) and writes them to `out` (B, S, V).
  // Requires a plan without packed sequences.
  void all_logits(std::span<const int32_t> tokens, float* out);
  // Computes the rows of the batch and writes their keys and values to the cache. Requires a
  // decoding plan, at most S rows and N sequences, and that all earlier positions of the sequences
  // are in the cache or in the batch.
  void decode(const DecodeBatch& batch);
  // Writes this rank's logits of some rows of the last decode() to `out` (rows, V). Requires at
  // most plan.head_rows rows.
  void row_logits(std::span<const int32_t> rows, float* out);

  // Returns the largest magnitudes of the operands of quantized GEMMs since the last
  // forward_backward() that did not accumulate, or since reset_amaxes(). The caller replaces them
  // by their maximum over ranks. Empty without delayed scaling (scaling_state.h).
  std::span<float> amaxes();
  // Adds amaxes() to the history and computes the scales of the next step.
  void advance_scaling();
  // Resets the scaling state to that before the first step, as the constructor does.
  void reset_scaling();

  // Makes all later passes record the operations of each layer and of the head as units. The
  // backend can replay a unit, for example as a CUDA graph, if its operations are the same each
  // time (ops/replay.h). Ops::take_notes() returns the units that are not replayed, with the
  // reasons. Requires that the plan is not for decoding.
  void replay();

  // Sets the observer of the values that passes compute; null: none. The observer must outlive
  // these passes.
  void observe(PassObserver* observer) { observer_ = observer; }

  // The functions below return this rank's shards. Those of parameters refuse rounded ones.

  // Returns the parameters in the layout's stored type.
  Tensor parameters();
  // Returns one piece of the parameters.
  Tensor parameters(const ShardPiece& piece);
  // Returns the frozen parameters in their layout's stored type. Requires that there are some.
  Tensor frozen_parameters();
  // Returns the parameters followed by the scaling state, in units of an fp32 element.
  std::span<float> state();
  // Returns the parameters as floats, for tests and benchmarks. Requires that they are fp32.
  std::span<float> params();
  // Returns the gradients. Requires a training plan.
  std::span<float> grads();

 private:
  struct Adapters;
  struct LayerWeights;
  struct Weights;
  struct HeadChunk;

  Tensor view(BufferId id, std::initializer_list<int64_t> dims) const;        // fp32
  Tensor activation(BufferId id, std::initializer_list<int64_t> dims) const;  // in plan_.dtype
  Tensor stream(BufferId id) const;                                           // (T', d)
  Tensor own_rows(const Tensor& all) const;  // this rank's rows (T', …) of a matrix (T, …)
  Tensor stats(BufferId id) const;
  Tensor gate_up(const LayerBuffers& buffers) const;
  void rope(RopeDirection direction, const Tensor& qkv);
  // Identifies a GEMM that may be quantized; nullopt for other GEMMs.
  struct DenseSite {
    size_t layer;
    DenseProduct product;
  };
  using Dense = std::optional<DenseSite>;
  // Computes y = x wᵀ and applies the epilogue to y.
  void project(const Dense& dense, const Tensor& x, const Tensor& weight, const Epilogue& epilogue,
               const Tensor& y);
  // Computes delta = x wᵀ + bias. Each rank has some of the columns of x, and receives its own rows
  // of delta.
  void project_and_sum(const Dense& dense, ExchangeSite site, const Tensor& x, const Tensor& weight,
                       const Tensor& bias);
  // Computes the gradients of the arguments of project(). Writes those of weight and bias to
  // `d_weight` and `d_bias`, and that of x to `dx`, which may be the same tensor as `x`. Applies
  // `epilogue` to dx.
  void project_backward(const Dense& dense, const Tensor& dy, const Tensor& x, const Tensor& weight,
                        const Tensor& d_weight, const Tensor& d_bias, const Epilogue& epilogue,
                        const Tensor& dx, Accumulate accumulate);

  // A quantized operand and its scale.
  struct Rounded {
    Tensor values;
    Tensor scale;
  };
  // The buffers for a quantized operand and its scale.
  struct RoundedBuffers {
    BufferId values;
    BufferId scale;
  };
  // Quantized GEMMs (transformer_quantized.cc): the quantized forms of project() and
  // project_backward(), and their parts.
  bool is_quantized(const Dense& dense) const;
  Tensor scaling_slot(float* block, const DenseSite& site, DenseOperand operand) const;
  RoundingNoise rounding_noise(const DenseSite& site, bool for_kernel) const;
  Rounded round(const DenseSite& site, DenseOperand operand, const Tensor& x, ScaleOf of,
                RoundedBuffers into, const std::optional<RoundingNoise>& noise = std::nullopt);
  void quantized_project(const DenseSite& site, const Tensor& x, const Tensor& weight,
                         const Tensor& y);
  void quantized_project_backward(const DenseSite& site, const Tensor& dy, const Tensor& x,
                                  const Tensor& weight, const Tensor& d_weight, const Tensor& dx,
                                  Accumulate accumulate);
  Workspace workspace() const;

  // Adapters of frozen weights (transformer_adapters.cc): their output for x is added to y and,
  // after adapters_backward(), their part of the gradient of x to dx, which may be x itself.
  bool is_adapted(const Dense& dense) const;
  void add_adapters(const DenseSite& site, const Tensor& x, const Tensor& y);
  void add_served_adapters(const DenseSite& site, const Tensor& x, const Tensor& y);
  // Adds scale x aᵀ bᵀ to y, for at most plan_.adapters.chunk_rows rows.
  void add_low_rank(const Tensor& x, const Tensor& a, const Tensor& b, double scale,
                    const Tensor& y);
  void adapters_backward(const DenseSite& site, const Tensor& dy, const Tensor& x,
                         Accumulate accumulate);
  void add_adapters_dx(const DenseSite& site, const Tensor& dx);
  Tensor block_diagonal(const Adapters& adapters, int64_t out);
  void adapter_dropout(const DenseSite& site, int64_t first, const Tensor& x);
  Tensor adapter_input(const DenseSite& site, const Tensor& x, int64_t first, int64_t rows);

  enum class DropoutSite : uint8_t { kInput, kAttention, kActivation, kMlp };
  double dropout_rate(DropoutSite site) const;  // in the current pass
  // Applies dropout to `x`, which has the columns `columns` of a matrix with `width` columns.
  void apply_dropout(DropoutSite site, size_t layer, const TokenRows& rows, const Tensor& x,
                     Share columns = {}, int64_t width = 0);
  void apply_dropout_to_own_rows(DropoutSite site, size_t layer, const Tensor& x);  // rows (T', d)
  void apply_dropout_to_activation(size_t layer, const Tensor& x);
  // Returns the gradient of the term that attention or the MLP adds to the residual stream.
  Tensor added_gradient(DropoutSite site, size_t layer);
  // Returns the buffer into which the backward pass of the MLP writes the gradient of normed2.
  Tensor normed2_gradient(size_t layer) const;

  // Copy the batch, or its starts, to the memory of the backend.
  void upload(const Batch& batch);
  void upload_starts(std::span<const int32_t> starts);
  // Sets the run that the following calls compute, and the batch's dropout source; nullopt: no
  // dropout.
  void enter(const LayerRun& run, const std::optional<DropoutSource>& dropout);
  const LayerBuffers& buffers_of(size_t layer) const { return plan_.buffers_of(run_, layer); }
  // Returns the parameter block that a forward pass reads after that of `layer`.
  size_t block_after(size_t layer) const;
  // Runs the layers forward. Does not release the parameter blocks of the final norm and the head;
  // release_end() does.
  LossSum forward_layers();
  LossSum backward_layers_and_ends(Accumulate wanted);
  void release_end();
  void embed();
  PagedRows paged_rows() const;  // the rows of this call
  void upload(const DecodeBatch& batch);
  void set_adapter_rows(std::span<const int32_t> adapters);  // DecodeBatch::adapters
  // The parts of a layer's forward pass, named after their results. The comments list their inputs.
  AttentionLayer attention_layer(size_t layer) const;
  void make_normed1(size_t layer);                 // input
  void make_qkv(size_t layer);                     // normed1
  void make_context(size_t layer);                 // qkv; also makes lse
  void make_middle(size_t layer);                  // input, context; also makes normed2
  void make_normed2(size_t layer);                 // middle
  void make_gate_up(size_t layer, bool with_act);  // normed2; with_act: also makes act
  void make_act(size_t layer);                     // gate_up
  void make_delta(size_t layer);                   // act
  // Returns whether the layer has experts instead of an MLP.
  bool has_experts(size_t layer) const {
    return plan_.model.experts.in_layer(static_cast<int64_t>(layer));
  }
  RoutingShape routing_shape() const;
  RoutingShape own_routing_shape() const;
  bool splits_rows() const { return plan_.part().splits_rows(); }
  bool broken() const { return blocks_.broken() || exchange_.broken(); }
  // The parameters of a GEMM, or their gradients.
  struct Stack {
    Tensor weight;
    Tensor bias;
  };
  // Computes the gradients of the arguments of project_and_sum(). project_all_backward() computes
  // those of a GEMM whose input is the rows of all ranks (ModelExchange::all_rows).
  void project_and_sum_backward(const DenseSite& dense, ExchangeSite site, const Tensor& d_delta,
                                const Tensor& x, const Tensor& weight, const Stack& gradients,
                                const Epilogue& epilogue, const Tensor& dx, Accumulate accumulate);
  void project_all_backward(const DenseSite& dense, ExchangeSite site, const Tensor& dy,
                            const Tensor& x, const Tensor& weight, const Stack& gradients,
                            const Tensor& dx, Accumulate accumulate);
  // The projections of a layer's queries, keys and values as one GEMM.
  Stack qkv_weights(size_t layer);
  Stack qkv_gradients(size_t layer) const;
  void unstack_gradients(size_t layer, Accumulate accumulate);
  Routing routing(size_t layer) const;
  // The experts that this rank's T tokens have chosen.
  struct OwnChoices {
    Tensor slots;  // (T, k)
    Tensor gates;  // (T, k)
  };
  OwnChoices own_choices(const Routing& routing) const;
  Tensor own_routed(const Tensor& all) const;  // this rank's rows (T, …) of a matrix (T*, …)
  Tensor target_weights() const;               // (T*); empty if nothing reads them
  // Returns the offsets of the rows that are sent to a layer's experts, and of those that are
  // received. Both are the same on a single rank.
  ExpertTraffic expert_traffic(size_t layer);
  Tensor expert_rows() const;                                             // (R, d)
  Tensor own_expert_rows(size_t layer) const;                             // (R', d)
  Tensor of_own_experts(size_t layer, BufferId id, int64_t width) const;  // (R', width)
  Tensor expert_act(size_t layer) const;                                  // (R', m)
  Tensor expert_gate_up(size_t layer) const;  // (R', 2m); without a gate (R', m)
  void send_to_experts(ExchangeSite site, size_t layer, const Tensor& x);
  // The parts of the forward pass of a layer with experts; the comments list their inputs.
  void make_routing(size_t layer);         // normed2
  void make_expert_gate_up(size_t layer);  // normed2, after the rows are counted
  void make_expert_act(size_t layer);
  void make_expert_delta(size_t layer);
  void backward_through_experts(size_t layer,
                                Accumulate accumulate);  // reads d_stream, writes delta
  LossSum sum_routing();

  void offload(size_t layer);  // copies the layer's offloaded tensors to the host
  // Copies offloaded tensors back to the device: those of attention, or those of the MLP.
  void fetch(size_t layer, bool of_attention);
  void recompute_layer(size_t layer);
  // The units that are recorded and replayed. Each has a recording per layer or chunk, per slot,
  // and for passes with and without gradients.
  enum class Piece : uint8_t { kLayer, kLayerBackward, kHead, kHeadBackward };
  void replayed(Piece piece, size_t layer, Accumulate accumulate, absl::FunctionRef<void()> calls);
  // Returns why the operations of the piece differ from call to call, so that it cannot be
  // replayed; null: they are the same each time.
  const char* why_not_replayed(Piece piece, size_t layer, bool with_gradients) const;
  LossSum head_loss();
  // Computes the losses of a chunk and appends the scores of this rank's rows.
  void score(const HeadChunk& chunk);
  // `wanted`: the pass's argument `accumulate`. ParameterBlocks::begin_gradient() decides for each
  // block whether its gradient accumulates.
  LossSum head_loss_backward(Accumulate wanted);
  void end_backward(Accumulate accumulate);
  void embedding_backward(Accumulate wanted);
  void finish_gradient(size_t block);
  template <class Chunk>
  LossSum sum_losses(Piece piece, Accumulate accumulate, const Chunk& chunk);
  // The parts of the backward pass; each computes the gradients of its parameters and of its input.
  void backward_layers(Accumulate wanted);
  void backward_through_attention(size_t layer, Accumulate accumulate);
  void backward_through_mlp(size_t layer, Accumulate accumulate);

  // Pass values to the observer, if there is one.
  void show(const char* name, const Tensor& x) const;
  void show(size_t layer, const char* name, const Tensor& x) const;
  void show_attention(size_t layer) const;
  void show_mlp(size_t layer) const;
  void show_gradients(size_t block) const;

  VocabularySlice vocabulary_slice() const;  // this rank's vocabulary ids
  TokenRows own_token_rows() const;          // this rank's rows of the residual stream
  // Returns the starts of this rank's positions; no data if the plan is not packed.
  Tensor own_starts() const;
  double embedding_scale() const;
  void scale_logits(const Tensor& hidden);
  // Computes the logits (R, V) of `hidden` (R, d) and copies them to the host. Requires R <=
  // head_rows.
  void download_logits(const Tensor& hidden, float* out);

  const TransformerPlan& plan_;
  Arena& arena_;
  Ops& ops_;
  WholeBlocks whole_;
  ParameterBlocks& blocks_;
  NoExchange no_exchange_;
  ReplayedExchange exchange_;
  AttentionShape shape_;
  NormShape norm_;
  int64_t rows_;      // T of this call
  int64_t own_rows_;  // T' of this call
  int64_t width_;     // d
  LayerRun run_;      // the run of the current pass
  std::optional<size_t> block_after_pass_;
  std::optional<DropoutSource> dropout_;   // set during a pass with gradients
  int64_t sequences_ = 0;                  // sequences of this decoding call
  std::vector<AdapterRows> adapter_rows_;  // rows of this decoding call with adapters
  // The expert row counts of each entry of plan_.layers, for the micro-batch in the entry's slot.
  // Empty if this rank has all experts.
  std::vector<ExpertCounts> expert_counts_;
  PassObserver* observer_ = nullptr;
  std::vector<TargetScore>* scores_ = nullptr;          // null: targets are not scored
  std::shared_ptr<Replayer> replayer_;                  // null: operations are called directly
  std::unique_ptr<const Weights> trained_, reference_;  // reference_: null without this model
  const Weights* weights_;                              // the model that passes read
  std::unique_ptr<const Weights> grads_;                // null: not a training plan
};

}  // namespace muster::trainer
