// The forward and backward passes of a decoder-only transformer, hand-written, over a static memory
// plan. ModelConfig selects the model family: every layer is x += attention(norm(x)); x +=
// mlp(norm(x)), or in a parallel block x += attention(n) + mlp(n) with n = norm(x).
//
// Dimensions: B sequences per step, S tokens each, T = B S, d = emb_dim, H query heads, K key/value
// heads, h = head_dim, m = mlp_dim, L layers, V vocabulary. If ranks split them (rank_part.h), H,
// K, m, V and S are this rank's share, T' of the T rows of the residual stream are its own, and T*
// are the tokens of whole sequences; on one rank T' = T = T*.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <absl/functional/function_ref.h>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/tensor.h"
#include "trainer_core/model/model_exchange.h"
#include "trainer_core/model/parameter_blocks.h"
#include "trainer_core/model/pass_observer.h"
#include "trainer_core/model/replayed_exchange.h"
#include "trainer_core/model/transformer_plan.h"
#include "trainer_core/ops/ops.h"
#include "trainer_core/ops/replay.h"

namespace muster::trainer {

// The source of dropout masks: they depend on it, on layer, site and element, and not on how
// samples are divided among steps, ranks and batches.
struct DropoutSource {
  uint64_t seed = 0;
  uint64_t first_sample = 0;  // of the batch's sequences, counted over the training
};

// tokens, targets: (B, S) ids below V. weights: (B, S), 1 where the target counts and 0 where it
// does not. The S positions are the plan's own_positions(). `dropout` is used by models with
// dropout only.
struct Batch {
  std::span<const int32_t> tokens;
  std::span<const int32_t> targets;
  std::span<const float> weights;
  DropoutSource dropout = {};
  // For plans of packed sequences, otherwise empty: the position in its sequence at which the
  // token's document begins, for the positions of the plan's attended_shape(). Documents do not
  // attend to each other, and each has positions from 0 on.
  std::span<const int32_t> starts = {};
};

struct LossSum {
  // Sum over targets of weight * (cross-entropy + z-loss), in nats, plus `balance`.
  double loss = 0;
  double weight = 0;  // sum of weights
  // The next three are sums over all layers with experts.
  double balance = 0;   // load-balancing losses, each group's times the sum of its weights
  int64_t routed = 0;   // choices: tokens times experts per token
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

// Not thread-safe; its ops may use several threads internally. Allocates nothing after its
// construction except what cpu_ops() documents for GEMMs: a step's peak memory is its plan's.
// Requires: token ids are in [0, V); the data loader checks them.
class Transformer {
 public:
  // All arguments outlive the model. The arena is made from plan.memory. A plan whose layout
  // gathers requires `blocks`; one that has a part of the model only requires an `exchange`.
  Transformer(const TransformerPlan& plan, Arena& arena, Ops& ops,
              ParameterBlocks* blocks = nullptr, ModelExchange* exchange = nullptr);
  ~Transformer();
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  // Returns the loss of the batch, without gradients and dropout.
  LossSum forward(const Batch& batch);
  // Returns the loss, and writes d(sum of the batch's losses)/d(parameter) to the gradient block,
  // or with kYes adds it to the gradients of earlier batches. The gradients are not normalized: the
  // caller scales them by 1/total weight once that is known over batches and ranks. With dropout.
  // Requires a training plan. If `blocks` or `exchange` breaks, any pass ends early and its results
  // are undefined.
  LossSum forward_backward(const Batch& batch, Accumulate accumulate = Accumulate::kNo);

  // The same in parts, for the stages of a pipeline: a micro-batch passes forward through the runs
  // of layers of all stages, and its gradient back through them. Between the two passes of a run no
  // other micro-batch uses its slot. forward_run() returns the losses of the run's layers. The
  // backward pass of the last run returns the loss of the targets; it must follow its forward pass
  // directly. Called before the first pass of a step:
  void reset_amaxes();
  // Requires: the stream is at entrance(run), unless the run begins the model.
  LossSum forward_run(const LayerRun& run, const Batch& batch);
  // Reads and replaces the gradient in stream_gradient().
  LossSum backward_run(const LayerRun& run, const Batch& batch, Accumulate accumulate);
  // Without gradients or dropout; for the last run, with the loss of the targets.
  LossSum evaluate_run(const LayerRun& run, const Batch& batch);
  Tensor entrance(const LayerRun& run) const;  // (T', d)
  // Writes the stream after the last executed run, which does not end the model.
  void leave_run(const Tensor& exit);  // (T', d)
  Tensor stream_gradient() const;      // (T', d)
  // Announces the first block of the next pass, to prefetch it; nullopt: it is present already.
  void expect(std::optional<size_t> block);
  // Announces the first block of the pass after the next one: it is fetched during the last layer
  // of the next pass.
  void expect_behind(std::optional<size_t> block) { block_behind_pass_ = block; }

  // Computes the logits of every position, out (B, S, V), for `tokens` (B, S). Not for packed
  // plans.
  void all_logits(std::span<const int32_t> tokens, float* out);
  // For decoding plans: appends `tokens` (B, C), C at most S, to those of earlier calls; out (B, V)
  // = the logits of the last one of every sequence. Requires: the total is at most the cache's
  // capacity.
  void extend(std::span<const int32_t> tokens, float* out);
  // The number of positions in the cache.
  int32_t length() const { return static_cast<int32_t>(cached_); }

  // Delayed scaling (scaling_state.h): the largest magnitudes since the last forward_backward()
  // that did not accumulate; the caller replaces them by the maximum over ranks. Empty for other
  // models.
  std::span<float> amaxes();
  // Adds the amaxes to the history and computes the next step's scales.
  void advance_scaling();
  // Resets the state to that before the first step, as the constructor does.
  void reset_scaling();

  // From now on the calls of a pass for a layer or the head are one run, which the backend may
  // replay as a unit (ops/replay.h) if it is the same each time. Not for decoding plans. The
  // operations' notes name the runs that are not replayed, with the reason.
  void replay();

  // Sets the observer of the values that passes compute; null: none. It outlives the passes.
  void observe(PassObserver* observer) { observer_ = observer; }

  // The rank's shards, for a plan that does not round them, in the layout's stored type; `state` is
  // the parameters and the scaling state, in elements of fp32's size.
  Tensor parameters();
  Tensor parameters(const ShardPiece& piece);
  std::span<float> state();
  // The shards. Requires that they are stored as fp32.
  std::span<float> params();
  std::span<float> grads();

 private:
  struct LayerWeights;
  struct Weights;
  struct HeadChunk;

  Tensor view(BufferId id, std::initializer_list<int64_t> dims) const;        // fp32
  Tensor activation(BufferId id, std::initializer_list<int64_t> dims) const;  // of plan_.dtype
  Tensor stream(BufferId id) const;                                           // (T', d)
  Tensor own_rows(const Tensor& all) const;  // of a matrix (T, …)
  Tensor stats(BufferId id) const;
  Tensor gate_up(const LayerBuffers& buffers) const;
  void rope(RopeDirection direction, const Tensor& qkv);
  // The site of a GEMM that may be quantized; nullopt for other GEMMs.
  struct DenseSite {
    size_t layer;
    DenseProduct product;
  };
  using Dense = std::optional<DenseSite>;
  // Computes y = x wᵀ with the epilogue.
  void project(const Dense& dense, const Tensor& x, const Tensor& weight, const Epilogue& epilogue,
               const Tensor& y);
  // Computes delta = x wᵀ + bias, if ranks have some columns of x each and own some rows of delta.
  void project_and_sum(const Dense& dense, ExchangeSite site, const Tensor& x, const Tensor& weight,
                       const Tensor& bias);
  // Computes the gradients of project()'s weight and bias, and writes that of x to `dx`, which may
  // be `x`; `epilogue` is applied to dx.
  void project_backward(const Dense& dense, const Tensor& dy, const Tensor& x, const Tensor& weight,
                        const Tensor& d_weight, const Tensor& d_bias, const Epilogue& epilogue,
                        const Tensor& dx, Accumulate accumulate);

  // An operand rounded to its grid, and the scale.
  struct Rounded {
    Tensor values;
    Tensor scale;
  };
  struct RoundedBuffers {
    BufferId values;
    BufferId scale;
  };
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

  enum class DropoutSite : uint8_t { kInput, kAttention, kActivation, kMlp };
  double dropout_rate(DropoutSite site) const;  // of the pass that is running
  // Drops elements of `x`, which has `columns` of `width`.
  void drop(DropoutSite site, size_t layer, const TokenRows& rows, const Tensor& x,
            Share columns = {}, int64_t width = 0);
  void drop_own(DropoutSite site, size_t layer, const Tensor& x);  // of the stream's rows
  void drop_activation(size_t layer, const Tensor& x);
  Tensor added_gradient(DropoutSite site, size_t layer);
  // The buffer in which the MLP's backward pass leaves this gradient.
  Tensor normed2_gradient(size_t layer) const;

  void upload(const Batch& batch);
  void upload_starts(std::span<const int32_t> starts);
  // Selects the run of the following passes, and the dropout source of the batch; nullopt: no
  // dropout.
  void enter(const LayerRun& run, const std::optional<DropoutSource>& dropout);
  const LayerBuffers& buffers_of(size_t layer) const { return plan_.buffers_of(run_, layer); }
  size_t block_behind(size_t layer) const;
  LossSum forward_layers();  // leaves the end and the head acquired
  LossSum backward_layers_and_ends(Accumulate wanted);
  void release_end();
  void embed();
  Tensor position_rows(BufferId table) const;  // this call's rows of a RoPE table
  // The pieces of a layer's forward pass, named after their results.
  AttentionLayer attention_layer(size_t layer) const;
  void make_normed1(size_t layer);                 // of input
  void make_qkv(size_t layer);                     // of normed1
  void make_context(size_t layer);                 // and lse, of qkv
  void make_middle(size_t layer);                  // and normed2, of input and context
  void make_normed2(size_t layer);                 // of middle
  void make_gate_up(size_t layer, bool with_act);  // of normed2, and act
  void make_act(size_t layer);                     // of gate_up
  void make_delta(size_t layer);                   // of act
  // The same for a layer with experts.
  bool has_experts(size_t layer) const {
    return plan_.model.experts.in_layer(static_cast<int64_t>(layer));
  }
  RoutingShape routing_shape() const;
  RoutingShape own_routing_shape() const;
  bool splits_rows() const { return plan_.part().splits_rows(); }
  bool broken() const { return blocks_.broken() || exchange_.broken(); }
  // A GEMM's parameters, or their gradients.
  struct Stack {
    Tensor weight;
    Tensor bias;
  };
  // The projections of a layer's queries, keys and values as one GEMM.
  void project_and_sum_backward(const DenseSite& dense, ExchangeSite site, const Tensor& d_delta,
                                const Tensor& x, const Tensor& weight, const Stack& gradients,
                                const Epilogue& epilogue, const Tensor& dx, Accumulate accumulate);
  void project_all_backward(const DenseSite& dense, ExchangeSite site, const Tensor& dy,
                            const Tensor& x, const Tensor& weight, const Stack& gradients,
                            const Tensor& dx, Accumulate accumulate);
  Stack qkv_weights(size_t layer);
  Stack qkv_gradients(size_t layer) const;
  void unstack_gradients(size_t layer, Accumulate accumulate);
  Routing routing(size_t layer) const;
  // The choices of this rank's T tokens.
  struct OwnChoices {
    Tensor slots;  // (T, k)
    Tensor gates;  // (T, k)
  };
  OwnChoices own_choices(const Routing& routing) const;
  Tensor own_routed(const Tensor& all) const;  // of a matrix (T*, …)
  Tensor target_weights() const;               // (T*); empty if nothing reads them
  // The rows sent to a layer's experts, and the rows received. The same on one rank.
  ExpertTraffic expert_traffic(size_t layer);
  Tensor expert_rows() const;                                             // (R, d)
  Tensor own_expert_rows(size_t layer) const;                             // (R', d)
  Tensor of_own_experts(size_t layer, BufferId id, int64_t width) const;  // (R', width)
  Tensor expert_act(size_t layer) const;                                  // (R', m)
  Tensor expert_gate_up(size_t layer) const;  // (R', 2m), without a gate (R', m)
  void send_to_experts(ExchangeSite site, size_t layer, const Tensor& x);
  void make_routing(size_t layer);         // of normed2
  void make_expert_gate_up(size_t layer);  // of normed2, once its rows are counted
  void make_expert_act(size_t layer);
  void make_expert_delta(size_t layer);
  void backward_experts(size_t layer, Accumulate accumulate);  // d_stream -> delta
  LossSum sum_routing();

  void offload(size_t layer);  // copies offloaded tensors from the device to the host
  // Copies them back: attention's, or the MLP's.
  void fetch(size_t layer, bool attentions);
  void recompute_layer(size_t layer);
  // Kinds of runs of calls; runs also differ by slot, and by whether the pass computes gradients.
  enum class Piece : uint8_t { kLayer, kLayerBackward, kHead, kHeadBackward };
  void replayed(Piece piece, size_t layer, Accumulate accumulate, absl::FunctionRef<void()> calls);
  // Returns why the piece's calls differ each time; null: they are the same.
  const char* why_not_replayed(Piece piece, size_t layer, bool with_gradients) const;
  LossSum head_loss();
  // `wanted` is the pass's; ParameterBlocks decides whether a block accumulates.
  LossSum head_loss_backward(Accumulate wanted);
  void end_backward(Accumulate accumulate);
  void embedding_backward(Accumulate wanted);
  void finish_gradient(size_t block);
  template <class Chunk>
  LossSum sum_losses(Piece piece, Accumulate accumulate, const Chunk& chunk);
  void backward_layers(Accumulate wanted);
  void backward_attention(size_t layer, Accumulate accumulate);
  void backward_mlp(size_t layer, Accumulate accumulate);

  void show(const char* name, const Tensor& x) const;
  void show(size_t layer, const char* name, const Tensor& x) const;
  void show_attention(size_t layer) const;
  void show_mlp(size_t layer) const;
  void show_gradients(size_t block) const;

  VocabularySlice vocabulary_slice() const;  // this rank's ids
  TokenRows own_token_rows() const;          // the stream's rows
  Tensor own_starts() const;
  double embedding_scale() const;
  void scale_logits(const Tensor& hidden);
  // Computes the logits (R, V) of hidden (R, d); R is at most head_rows.
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
  LayerRun run_;      // of the current pass
  std::optional<size_t> block_behind_pass_;
  std::optional<DropoutSource> dropout_;  // set during a pass with gradients
  int64_t cached_ = 0;                    // positions of earlier calls
  // By index in plan_.layers, for the micro-batch in that slot. Empty if this rank has all experts.
  std::vector<ExpertCounts> expert_counts_;
  PassObserver* observer_ = nullptr;
  std::shared_ptr<Replayer> replayer_;  // null: runs are called directly
  std::unique_ptr<const Weights> weights_;
  std::unique_ptr<const Weights> grads_;  // set for a training plan
};

}  // namespace muster::trainer
