// The forward and backward passes of a decoder-only transformer, by hand, over a static memory plan. ModelConfig says
// which of the families it is: every layer is x += attention(norm(x)); x += mlp(norm(x)), or in a parallel block
// x += attention(n) + mlp(n) with n = norm(x).
//
// Dimensions: B sequences per step, S tokens each, T = B S, d = emb_dim, H query heads, K key/value heads,
// h = head_dim, m = mlp_dim, L layers, V vocabulary. Of ranks that split them (rank_part.h), H, K, m, V and S are this rank's share, T'
// of the T rows of the residual stream are its own, and T* are the tokens of whole sequences; on one rank T' = T = T*.
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

// What dropout draws from: masks depend on this, on layer, site and element, and not on how samples
// are spread over steps, ranks and batches.
struct DropoutSource {
  uint64_t seed = 0;
  uint64_t first_sample = 0;  // of the batch's sequences, counted over the training
};

// tokens, targets: (B, S) ids below V. weights: (B, S), 1 where the target counts and 0 where it
// does not. The S are the plan's own_positions(). `dropout` matters to models that have it.
struct Batch {
  std::span<const int32_t> tokens;
  std::span<const int32_t> targets;
  std::span<const float> weights;
  DropoutSource dropout = {};
  // Of plans for packed sequences, else empty: where in its sequence the token's document begins, of the positions of the plan's
  // attended_shape(). Documents see nothing of each other, and each has positions from 0 on.
  std::span<const int32_t> starts = {};
};

struct LossSum {
  double loss = 0;  // sum over targets of weight * (cross-entropy + z-loss), nats; and the balance
  double weight = 0;  // sum of weights
  // Of all layers with experts:
  double balance = 0;   // load-balancing losses, each group's times the sum of its weights
  int64_t routed = 0;   // choices: tokens times experts per token
  int64_t dropped = 0;  // of them, those that found their expert full

  LossSum& operator+=(const LossSum& other) {
    loss += other.loss;
    weight += other.weight;
    balance += other.balance;
    routed += other.routed;
    dropped += other.dropped;
    return *this;
  }
};

// Not thread-safe; its ops may use several threads inside. Allocates nothing after its construction
// but what cpu_ops() says of matrix products: a step's peak memory is its plan's. Token ids must lie
// in [0, V): the data loader judges them.
class Transformer {
 public:
  // `plan`, `arena`, `ops`, `blocks` and `exchange` outlive the model. The arena was made from plan.memory. A plan whose layout
  // gathers needs `blocks`, one whose part is not all of the model an `exchange`.
  Transformer(const TransformerPlan& plan, Arena& arena, Ops& ops,
              ParameterBlocks* blocks = nullptr, ModelExchange* exchange = nullptr);
  ~Transformer();
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  // Loss of the batch without gradients, and without dropout.
  LossSum forward(const Batch& batch);
  // Loss, and d(sum of the batch's losses)/d(parameter) written into the gradient block, or with
  // kYes added to what earlier batches left there. Not divided by anything: the caller scales by
  // 1/total weight once it is known across batches and ranks. With dropout. Training plans. Where `blocks` or `exchange`
  // breaks, any pass ends early, and its results mean nothing.
  LossSum forward_backward(const Batch& batch, Accumulate accumulate = Accumulate::kNo);

  // The same in parts, for the stages of a pipeline: a micro-batch goes forward through the runs of layers that the stages have, and its
  // gradient back through them. Between a run's two passes its slot is its own. What a run's layers add to the loss is in what its
  // forward pass returns, what the targets do in that of the backward pass of the last run, which comes next after its
  // forward pass. As the first of a step's passes, forget_magnitudes().
  void forget_magnitudes();
  // The stream is at entrance(run), unless the run begins the model.
  LossSum forward_run(const LayerRun& run, const Batch& batch);
  // Its gradient comes and goes in stream_gradient().
  LossSum backward_run(const LayerRun& run, const Batch& batch, Accumulate accumulate);
  // Without gradients or dropout: of the last run with the loss of the targets.
  LossSum evaluate_run(const LayerRun& run, const Batch& batch);
  Tensor entrance(const LayerRun& run) const;  // (T', d)
  // The stream behind the run that was passed through last, which does not end the model.
  void leave_run(const Tensor& exit);  // (T', d)
  Tensor stream_gradient() const;      // (T', d)
  // The next pass begins with this block; none: with what is there.
  void expect(std::optional<size_t> block);
  // The pass behind the next one does: it is fetched beside the next one's last layer.
  void expect_behind(std::optional<size_t> block) { block_behind_pass_ = block; }

  // Logits of every position, out (B, S, V), for `tokens` (B, S). Not of packed plans.
  void all_logits(std::span<const int32_t> tokens, float* out);
  // Decoding plans: adds `tokens` (B, C), C at most S, behind those of the calls before; out (B, V) = the logits of the last
  // one of every sequence. No more than the cache's capacity in all.
  void extend(std::span<const int32_t> tokens, float* out);
  // Positions in the cache.
  int32_t length() const { return static_cast<int32_t>(cached_); }

  // Delayed scaling (scaling_state.h): the largest magnitudes since the last forward_backward() that did not accumulate, which
  // the caller makes those of all ranks. None of another model.
  std::span<float> amaxes();
  // They join the history, and make the next step's scales.
  void advance_scaling();
  // As before the first step, which is how the constructor leaves it.
  void reset_scaling();

  // From now on what passes call for a layer or the head is one run of calls, which the backend may start as one (ops/replay.h), where it is
  // the same each time. Not of decoding plans. What is not, and why, the operations' notes have.
  void replay();

  // From now on `observer` sees what passes compute; null: nobody. It outlives them.
  void observe(PassObserver* observer) { observer_ = observer; }

  // The rank's shards, of a plan that does not round them; `state` is the parameters and the scaling state.
  std::span<float> params();
  std::span<float> state();
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
  // Which of the products that may be quantized; none: another.
  struct DenseSite {
    size_t layer;
    DenseProduct product;
  };
  using Dense = std::optional<DenseSite>;
  // y = x wᵀ and what the epilogue makes of it
  void project(const Dense& dense, const Tensor& x, const Tensor& weight, const Epilogue& epilogue,
               const Tensor& y);
  // delta = x wᵀ + bias, where ranks have some of x's columns each and own some of delta's rows.
  void project_and_sum(const Dense& dense, ExchangeSite site, const Tensor& x, const Tensor& weight,
                       const Tensor& bias);
  // Gradients of project's weight and bias, and of x written into `dx`, which may be `x`: of what the epilogue makes it the gradient.
  void project_backward(const Dense& dense, const Tensor& dy, const Tensor& x, const Tensor& weight,
                        const Tensor& d_weight, const Tensor& d_bias, const Epilogue& epilogue,
                        const Tensor& dx, Accumulate accumulate);

  // An operand on its grid.
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
  // `columns` of `width`: those that x has.
  void drop(DropoutSite site, size_t layer, const TokenRows& rows, const Tensor& x,
            Share columns = {}, int64_t width = 0);
  void drop_own(DropoutSite site, size_t layer, const Tensor& x);  // of the stream's rows
  void drop_activation(size_t layer, const Tensor& x);
  Tensor added_gradient(DropoutSite site, size_t layer);
  Tensor normed2_gradient(size_t layer) const;  // where the MLP's backward pass leaves it

  void upload(const Batch& batch);
  void upload_starts(std::span<const int32_t> starts);
  // From now on passes are through `run`; with the batch's dropout.
  void enter(const LayerRun& run, const std::optional<DropoutSource>& dropout);
  const LayerBuffers& buffers_of(size_t layer) const { return plan_.buffers_of(run_, layer); }
  size_t block_behind(size_t layer) const;
  LossSum forward_layers();  // leaves the end and the head acquired
  LossSum backward_layers_and_ends(Accumulate wanted);
  void release_end();
  void embed();
  Tensor position_rows(BufferId table) const;  // this call's rows of a table of RoPE
  // The pieces of a layer's forward pass, by what they make.
  AttentionLayer attention_layer(size_t layer) const;
  void make_normed1(size_t layer);                 // of input
  void make_qkv(size_t layer);                     // of normed1
  void make_context(size_t layer);                 // and lse, of qkv
  void make_middle(size_t layer);                  // and normed2, of input and context
  void make_normed2(size_t layer);                 // of middle
  void make_gate_up(size_t layer, bool with_act);  // of normed2, and act
  void make_act(size_t layer);                     // of gate_up
  void make_delta(size_t layer);                   // of act
  // The same of a layer with experts.
  bool has_experts(size_t layer) const {
    return plan_.model.experts.in_layer(static_cast<int64_t>(layer));
  }
  RoutingShape routing_shape() const;
  RoutingShape own_routing_shape() const;
  bool splits_rows() const { return plan_.part().splits_rows(); }
  bool broken() const { return blocks_.broken() || exchange_.broken(); }
  // A product's parameters, or their gradients.
  struct Stack {
    Tensor weight;
    Tensor bias;
  };
  // Of a layer's queries, keys and values as one.
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
  // Of this rank's T tokens.
  struct OwnChoices {
    Tensor slots;  // (T, k)
    Tensor gates;  // (T, k)
  };
  OwnChoices own_choices(const Routing& routing) const;
  Tensor own_routed(const Tensor& all) const;  // of a matrix (T*, …)
  Tensor target_weights() const;               // (T*); none where nobody reads them
  // Of a layer's experts: what goes to them, and what has come. On one rank the same.
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

  void stow(size_t layer);                    // offloaded tensors: device to host
  void fetch(size_t layer, bool attentions);  // and back: attention's, or the MLP's
  void recompute_layer(size_t layer);
  // A run of calls: in passes with gradients or without them, of each slot.
  enum class Piece : uint8_t { kLayer, kLayerBackward, kHead, kHeadBackward };
  void replayed(Piece piece, size_t layer, Accumulate accumulate, absl::FunctionRef<void()> calls);
  // What makes its calls others each time; null: nothing.
  const char* why_differs(Piece piece, size_t layer, bool with_gradients) const;
  LossSum head_loss();
  // `wanted` is the pass's: whoever keeps a block's gradient says what it comes to.
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
  TokenRows own_token_rows() const;          // what the stream's rows are
  Tensor own_starts() const;
  double embedding_scale() const;
  void scale_logits(const Tensor& hidden);
  // hidden (R, d) -> out (R, V), R at most head_rows.
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
  int64_t own_rows_;  // and T'
  int64_t width_;     // d
  int64_t parameters_;
  LayerRun run_;  // whose pass is running
  std::optional<size_t> block_behind_pass_;
  std::optional<DropoutSource> dropout_;  // while a pass with gradients runs
  int64_t cached_ = 0;                    // positions that came before this call's
  // As plan_.layers: of the micro-batch that is in its slot. None where this rank has all experts.
  std::vector<ExpertCounts> expert_counts_;
  PassObserver* observer_ = nullptr;
  std::shared_ptr<Replayer> replayer_;  // null: runs are called
  std::unique_ptr<const Weights> weights_;
  std::unique_ptr<const Weights> grads_;  // of a training plan
};

}  // namespace muster::trainer
