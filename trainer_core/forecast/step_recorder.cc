#include "trainer_core/forecast/step_recorder.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer_core/base/train_mesh.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/comm/transport_group.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/step_passes.h"
#include "trainer_core/rank/step_tail.h"

namespace muster::trainer {
namespace {

// Memory
// -------------------------------------------------------------------------------------------------

// Reserves address space without pages. An access to it ends the process. Thread-safe.
class ReservedMemory final : public DeviceMemory {
 public:
  bool is_host() const override { return false; }
  std::shared_ptr<void> allocate(size_t bytes) const override { return reserve(bytes, false); }
  std::shared_ptr<void> allocate_host(size_t bytes) const override { return reserve(bytes, true); }
  std::shared_ptr<void> reserve_host(size_t bytes) const override { return reserve(bytes, true); }
  bool holds(const void* address) const override {
    const std::lock_guard lock(mutex_);
    return lies_in(device_, address);
  }
  // Returns whether an address is host memory of the plan.
  bool is_planned_host(const void* address) const {
    const std::lock_guard lock(mutex_);
    return lies_in(host_, address);
  }
  void download(const void*, void*, size_t) const override {}
  void upload(const void*, void*, size_t) const override {}

 private:
  using Areas = std::map<const char*, size_t>;

  static bool lies_in(const Areas& areas, const void* address) {
    const auto* const at = static_cast<const char*>(address);
    const auto after = areas.upper_bound(at);
    if (after == areas.begin()) return false;
    const auto& [begin, bytes] = *std::prev(after);
    return at < begin + bytes;
  }

  std::shared_ptr<void> reserve(size_t bytes, bool host) const {
    const size_t size = std::max<size_t>(bytes, 1);
    void* const at =
        ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUSTER_CHECK(at != MAP_FAILED) << "cannot reserve " << size << " bytes of address space";
    const std::lock_guard lock(mutex_);
    (host ? host_ : device_)[static_cast<const char*>(at)] = size;
    return {at, [size](void* begin) { ::munmap(begin, size); }};
  }

  mutable std::mutex mutex_;  // guards the areas
  mutable Areas device_, host_;
};

// The trace
// -------------------------------------------------------------------------------------------------

struct Range {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool is_only_read = false;  // of an operation's tensor: it may not write it

  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

Range range_of(const Tensor& tensor) {
  const auto* const begin = static_cast<const std::byte*>(tensor.data);
  return {.begin = begin, .end = begin + (begin == nullptr ? 0 : tensor.bytes())};
}

// Adds work to a trace. The computation's thread and those of communication streams call it.
class Recorder {
 public:
  // Adds a work of the computation, which waits for the communication that accesses its memory.
  TracedWork& compute(TracedWork work, std::span<const Range> accesses) {
    std::unique_lock lock(mutex_);
    // All communication that was begun earlier is in the trace, so that the result does not depend
    // on the threads' speed.
    settled_.wait(lock, [this] { return pending_ == 0; });
    work.phase = phase_;
    work.layer = layer_;
    std::erase_if(unsettled_, [&](const Unsettled& other) {
      const bool waits = std::ranges::any_of(accesses, [&](const Range& range) {
        return range.meets(other.output) || (!range.is_only_read && range.meets(other.input));
      });
      if (waits) work.waits.push_back(other.index);
      return waits;
    });
    auto& all = trace_.of(StepStream::kCompute);
    all.push_back(std::move(work));
    return all.back();
  }

  // Adds a collective of another stream. It begins after the marker for which its thread has
  // waited last.
  void communicate(StepStream stream, TracedWork work, Range input, Range output) {
    const std::lock_guard lock(mutex_);
    work.after = ready_after_;
    auto& all = trace_.of(stream);
    unsettled_.push_back({{stream, static_cast<int32_t>(all.size())}, input, output});
    all.push_back(std::move(work));
    --pending_;
    settled_.notify_all();
  }

  // Announces a communicate() of another thread, and returns the position after which it begins.
  int32_t expect_communication() {
    const std::lock_guard lock(mutex_);
    ++pending_;
    return static_cast<int32_t>(trace_.of(StepStream::kCompute).size());
  }

  int32_t group(CollectiveGroup group) {
    const std::lock_guard lock(mutex_);
    trace_.groups.push_back(std::move(group));
    return static_cast<int32_t>(trace_.groups.size()) - 1;
  }

  // Number of works of the computation so far.
  int32_t position() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int32_t>(trace_.of(StepStream::kCompute).size());
  }
  static void set_ready_after(int32_t position) { ready_after_ = position; }

  void begin_pass() { trace_.passes.push_back({position()}); }
  void begin_tail() { trace_.tail = position(); }

  void begin_range(std::string_view name, int64_t number) {
    const std::lock_guard lock(mutex_);
    ranges_.push_back({phase_, layer_});
    if (name == "forward") phase_ = StepPhase::kForward;
    if (name == "backward") phase_ = StepPhase::kBackward;
    if (name == "recompute") phase_ = StepPhase::kRecompute;
    if (name == "update" || name == "reduce") phase_ = StepPhase::kUpdate;
    if (name == "layer") layer_ = static_cast<int32_t>(number);
  }
  void end_range() {
    const std::lock_guard lock(mutex_);
    phase_ = ranges_.back().phase;
    layer_ = ranges_.back().layer;
    ranges_.pop_back();
  }

  StepTrace take() { return std::move(trace_); }

 private:
  // A collective for which the computation has not waited yet.
  struct Unsettled {
    WorkIndex index;
    Range input, output;
  };
  struct OuterRange {
    StepPhase phase;
    int32_t layer;
  };

  inline static thread_local int32_t ready_after_ = 0;

  mutable std::mutex mutex_;  // guards all members
  StepTrace trace_;
  std::vector<Unsettled> unsettled_;
  std::condition_variable settled_;  // no communication is pending
  int pending_ = 0;                  // communication that was announced, but is not in the trace
  std::vector<OuterRange> ranges_;
  StepPhase phase_ = StepPhase::kForward;
  int32_t layer_ = -1;
};

class RecordingMark final : public DeviceMark {
 public:
  explicit RecordingMark(int32_t position) : position_(position) {}
  bool is_done() const override { return true; }
  void wait() const override { Recorder::set_ready_after(position_); }
  Duration since(const DeviceMark&) const override { return {}; }

 private:
  const int32_t position_;
};

class RecordingQueue final : public DeviceQueue {
 public:
  explicit RecordingQueue(Recorder& recorder) : recorder_(recorder) {}
  void* handle() const override { return nullptr; }
  std::shared_ptr<const DeviceMark> mark() override {
    return std::make_shared<RecordingMark>(recorder_.expect_communication());
  }
  void wait_for(const DeviceMark&) override {}

 private:
  Recorder& recorder_;
};

// Operations
// -------------------------------------------------------------------------------------------------

// Collects the tensors among an operation's arguments, in order; a missing one is a null range.
struct TensorList {
  std::vector<Range> ranges;

  void add(const Tensor& tensor) { ranges.push_back(range_of(tensor)); }
  void add_read(const Tensor& tensor) {
    add(tensor);
    ranges.back().is_only_read = true;
  }
  void add(const NormWeights& weights) {
    add(weights.gain);
    add(weights.bias);
  }
  void add(const Routing& routing) {
    for (const Tensor& tensor : {routing.probs, routing.experts, routing.gates, routing.slots,
                                 routing.offsets, routing.density, routing.balance})
      add(tensor);
  }
  void add(const KvCache& cache) {
    add(cache.keys);
    add(cache.values);
  }
  void add(const KeyValueBlock& block) { add_read(block.rows); }
  void add(const AttentionSums& sums) {
    add(sums.out);
    add(sums.lse);
  }
  void add(const AttentionBlockGradients& gradients) {
    add(gradients.dq);
    add(gradients.dkv);
    add(gradients.dbias);
  }
  template <class Other>
  void add(const Other&) {}

  double bytes(size_t i) const { return static_cast<double>(ranges[i].end - ranges[i].begin); }
  double bytes() const {
    double all = 0;
    for (size_t i = 0; i < ranges.size(); ++i) all += bytes(i);
    return all;
  }
};

// Returns the bytes that an operation reads and writes: each of its tensors once, except those
// that it both reads and writes, and tables of which it needs some rows.
double moved_bytes(std::string_view name, const TensorList& tensors) {
  const double all = tensors.bytes();
  if (name == "scale" || name == "dropout" || name == "soft_cap") return 2 * all;
  if (name == "rope") return all + tensors.bytes(2);
  if (name == "add_bias") return all + tensors.bytes(1);
  if (name == "norm_backward") return all + tensors.bytes(5);
  if (name == "adam") return all + tensors.bytes(1) + tensors.bytes(2) + tensors.bytes(3);
  if (name == "apply_update") return all + tensors.bytes(1);
  if (name == "embedding") return all - tensors.bytes(1) + tensors.bytes(2);
  if (name == "embedding_backward") return all - tensors.bytes(2) + 2 * tensors.bytes(1);
  return all;
}

AttentionWork attention_work(const AttentionShape& shape, bool backward) {
  return {.batch = shape.batch,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .queries = shape.seq_len,
          .keys = shape.window > 0 ? std::min(shape.seq_len, 2 * shape.window) : shape.seq_len,
          .head_dim = shape.head_dim,
          .backward = backward};
}

class RecordingOps final : public Ops {
 public:
  RecordingOps(Recorder& recorder, const ReservedMemory& memory)
      : recorder_(recorder), memory_(memory), queue_(std::make_shared<RecordingQueue>(recorder)) {}

  std::string_view name() const override { return "recording"; }
  void upload(const void*, const Tensor&) override {}
  void download(const Tensor& from, void* to) override {
    std::memset(to, 0, from.bytes());
    const auto rows = expert_rows_.find(from.data);
    if (rows == expert_rows_.end()) return;
    auto* const offsets = static_cast<int32_t*>(to);
    const int64_t experts = from.elements() - 1;
    for (int64_t i = 0; i <= experts; ++i)
      offsets[i] = static_cast<int32_t>(rows->second * i / experts);
  }
  void synchronize() override {}
  std::shared_ptr<DeviceQueue> queue() override { return queue_; }
  void begin_range(const char* name, int64_t number) override {
    recorder_.begin_range(name, number);
  }
  void end_range() override { recorder_.end_range(); }

  void matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
              const Tensor& c, Accumulate accumulate) override {
    gemm(a, transpose_a, b, transpose_b, c, accumulate == Accumulate::kYes, {});
  }
  void fused_matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
                    const Tensor& c, const Epilogue& epilogue) override {
    gemm(a, transpose_a, b, transpose_b, c, /*adds=*/false, epilogue.pre);
  }

 private:
#define MUSTER_OP(result, name, parameters, arguments)                            \
  result do_##name parameters override {                                          \
    const auto add = [this](const auto&... all) {                                 \
      TensorList tensors;                                                         \
      (tensors.add(all), ...);                                                    \
      operation(#name, tensors);                                                  \
      if constexpr (requires { special_##name(all...); }) special_##name(all...); \
    };                                                                            \
    add arguments;                                                                \
    return result();                                                              \
  }
  void special_attention(const AttentionShape& shape, const Tensor&, const Tensor&, const Tensor&,
                         const Tensor&, Workspace) {
    attend(attention_work(shape, false));
  }
  void special_attention_backward(const AttentionShape& shape, const Tensor&, const Tensor&,
                                  const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                  const Tensor&, Accumulate, Workspace) {
    attend(attention_work(shape, true));
  }
  void special_attention_block(const AttentionShape& shape, const Tensor&, const KeyValueBlock&,
                               const Tensor&, const AttentionSums&, Accumulate, Workspace) {
    attend(block_of(shape, false));
  }
  void special_attention_block_backward(const AttentionShape& shape, const Tensor&,
                                        const KeyValueBlock&, const Tensor&, const Tensor&,
                                        const Tensor&, const Tensor&,
                                        const AttentionBlockGradients&, Workspace) {
    attend(block_of(shape, true));
  }
  void special_quantize(NumberGrid, const Tensor&, ScaleOf, const Tensor&,
                        const std::optional<RoundingNoise>&, const Tensor& out) {
    rounded_.insert(out.data);
  }
  void special_copy(const Tensor& from, const Tensor& to) {
    if (!memory_.is_planned_host(from.data) && !memory_.is_planned_host(to.data)) return;
    last().kind = WorkKind::kHostCopy;
    last().bytes = static_cast<double>(from.bytes());
  }
  void special_route(const RoutingShape& shape, const Tensor&, const Routing& routing) {
    expert_rows_[routing.offsets.data] = shape.own_tokens() * shape.per_token;
  }
  void special_expert_matmul(const Tensor& offsets, const Tensor& x, const Tensor&,
                             const Tensor& y) {
    expert_gemm(offsets, x.dim(0), y.dim(1), x.dim(1));
  }
  void special_expert_matmul_dx(const Tensor& offsets, const Tensor& dy, const Tensor&,
                                const Tensor& dx) {
    expert_gemm(offsets, dy.dim(0), dx.dim(1), dy.dim(1));
  }
  void special_expert_matmul_dw(const Tensor& offsets, const Tensor& dy, const Tensor& x,
                                const Tensor&, Accumulate) {
    const int64_t experts = offsets.elements() - 1;
    set_gemm({.m = dy.dim(1),
              .n = x.dim(1),
              .k = std::max<int64_t>(dy.dim(0) / experts, 1),
              .batches = experts});
  }
#include "trainer_core/ops/op_table.inc"

  void operation(const char* name, const TensorList& tensors) {
    last_ = &recorder_.compute(
        {.kind = WorkKind::kMemory, .name = name, .bytes = moved_bytes(name, tensors)},
        tensors.ranges);
  }
  TracedWork& last() { return *last_; }

  void attend(const AttentionWork& work) {
    last().kind = WorkKind::kAttention;
    last().attention = work;
    // Forward: scores and weighted values. Backward: both again, and the gradients of three inputs.
    const double products = work.backward ? 5 : 2;
    last().flops = products * 2 * static_cast<double>(work.batch * work.heads * work.queries) *
                   static_cast<double>(work.keys * work.head_dim) / (work.causal ? 2 : 1);
  }
  // Over all blocks of a ring, a query attends to half of the keys on average.
  static AttentionWork block_of(const AttentionShape& shape, bool backward) {
    return attention_work(shape, backward);
  }

  void set_gemm(const GemmShape& shape) {
    last().kind = WorkKind::kGemm;
    last().gemm = shape;
    last().flops = 2 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                   static_cast<double>(shape.k) * static_cast<double>(shape.batches);
  }
  void expert_gemm(const Tensor& offsets, int64_t rows, int64_t n, int64_t k) {
    const int64_t experts = offsets.elements() - 1;
    set_gemm({.m = std::max<int64_t>(rows / experts, 1), .n = n, .k = k, .batches = experts});
  }

  void gemm(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose, const Tensor& c,
            bool adds, const Tensor& extra) {
    const bool is_bf16 = a.dtype == DType::kBf16 || b.dtype == DType::kBf16;
    TensorList tensors;
    for (const Tensor& operand : {a, b}) tensors.add_read(operand);
    for (const Tensor& result : {c, extra}) tensors.add(result);
    double bytes = tensors.bytes() + (adds ? tensors.bytes(2) : 0);
    // The backend rounds fp32 operands to bf16 first, in a kernel of their own.
    for (const Tensor& operand : {a, b}) {
      if (!is_bf16 || operand.dtype != DType::kF32) continue;
      TensorList from;
      from.add_read(operand);
      const double half = from.bytes() / 2;
      last_ = &recorder_.compute(
          {.kind = WorkKind::kMemory, .name = "convert", .bytes = from.bytes() + half},
          from.ranges);
      bytes -= half;
    }
    last_ = &recorder_.compute({.kind = WorkKind::kGemm, .name = "matmul", .bytes = bytes},
                               tensors.ranges);
    set_gemm({.m = c.dim(0),
              .n = c.dim(1),
              .k = a.dim(transpose_a == Transpose::kYes ? 0 : 1),
              .quantized = rounded_.contains(a.data) && rounded_.contains(b.data),
              .fp32 = !is_bf16});
  }

  Recorder& recorder_;
  const ReservedMemory& memory_;
  std::shared_ptr<RecordingQueue> queue_;
  TracedWork* last_ = nullptr;                  // the last work of the computation
  std::set<const void*> rounded_;               // buffers of quantized operands
  std::map<const void*, int64_t> expert_rows_;  // rows by the address of Routing::offsets
};

class RecordingBackend final : public Backend {
 public:
  explicit RecordingBackend(Recorder& recorder) : ops_(recorder, memory_) {}
  Ops& ops() override { return ops_; }
  const DeviceMemory& memory() const override { return memory_; }
  int threads() const override { return 1; }
  std::string description() const override { return "recording"; }

 private:
  ReservedMemory memory_;
  RecordingOps ops_;
};

// Collectives
// -------------------------------------------------------------------------------------------------

// A world of which only this rank exists.
class LonelyTransport final : public Transport {
 public:
  LonelyTransport(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Channel> open(std::string_view, std::span<const int>) override { return nullptr; }
  void fail(const std::string&) override {}

 private:
  const int rank_, size_;
};

std::string axes_name(const std::string& name) { return name.substr(0, name.find('#')); }

StepStream stream_of(int channel, CollectiveKind kind) {
  if (channel == kComputeChannel) return StepStream::kCompute;
  if (channel == kOverlapChannel) return StepStream::kOverlap;
  if (channel == kRingChannel) return StepStream::kRing;
  return kind == CollectiveKind::kSend ? StepStream::kSend : StepStream::kReceive;
}

class RecordingGroup final : public ProcessGroup {
 public:
  RecordingGroup(Recorder& recorder, GroupSpec spec, int rank, int channel)
      : recorder_(recorder), spec_(std::move(spec)), channel_(channel) {
    const auto own = std::ranges::find(spec_.members, rank);
    rank_ = static_cast<int>(own - spec_.members.begin());
    const std::set<int> nodes(spec_.nodes.begin(), spec_.nodes.end());
    group_ = recorder.group({.name = axes_name(spec_.name),
                             .ranks = size(),
                             .nodes = static_cast<int32_t>(nodes.size())});
  }

  const std::string& name() const override { return spec_.name; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(spec_.members.size()); }

  absl::Status all_reduce(BufferView data, std::string_view) override {
    return record(CollectiveKind::kAllReduce, "all-reduce", data, data);
  }
  absl::Status all_reduce_max(BufferView data, std::string_view) override {
    return record(CollectiveKind::kAllReduce, "all-reduce", data, data);
  }
  absl::Status all_gather(ConstBufferView input, BufferView output, std::string_view) override {
    return record(CollectiveKind::kAllGather, "all-gather", input, output);
  }
  absl::Status reduce_scatter(ConstBufferView input, BufferView output, std::string_view) override {
    return record(CollectiveKind::kReduceScatter, "reduce-scatter", input, output);
  }
  // Every rank has the same numbers of rows, so what others send equals what this rank sends.
  absl::Status all_to_all_v(ConstBufferView input, std::span<const size_t>, BufferView output,
                            std::span<const size_t>, std::string_view) override {
    if (input.dtype == DType::kI32 && input.bytes() == output.bytes())
      std::memcpy(output.data, input.data, input.bytes());
    return record(CollectiveKind::kAllToAll, "all-to-all", input, output);
  }
  absl::Status broadcast(BufferView data, int, std::string_view) override {
    return record(CollectiveKind::kBroadcast, "broadcast", data, data);
  }
  absl::Status send(ConstBufferView data, int, std::string_view) override {
    return record(CollectiveKind::kSend, "send", data, {});
  }
  absl::Status recv(BufferView data, int, std::string_view) override {
    return record(CollectiveKind::kRecv, "receive", {}, data);
  }
  absl::Status send_recv(ConstBufferView outgoing, int, BufferView incoming, int,
                         std::string_view) override {
    return record(CollectiveKind::kSendRecv, "send and receive", outgoing, incoming);
  }
  absl::Status barrier(std::string_view) override {
    return record(CollectiveKind::kBarrier, "barrier", {}, {});
  }
  SentBytes sent(CollectiveKind) const override { return {}; }
  Duration busy() const override { return {}; }
  void abort() override {}

 private:
  absl::Status record(CollectiveKind kind, const char* name, ConstBufferView input,
                      BufferView output) {
    if (size() == 1) return absl::OkStatus();
    const Range from{.begin = input.data, .end = input.data + input.bytes()};
    const Range to{.begin = output.data, .end = output.data + output.bytes()};
    const double data = kind == CollectiveKind::kRecv ? static_cast<double>(output.bytes())
                                                      : static_cast<double>(input.bytes());
    TracedWork work{.kind = WorkKind::kCollective,
                    .name = name,
                    .bytes = data,
                    .collective = kind,
                    .group = group_};
    const StepStream stream = stream_of(channel_, kind);
    if (stream == StepStream::kCompute) {
      recorder_.compute(std::move(work), std::array{from, to});
    } else {
      recorder_.communicate(stream, std::move(work), from, to);
    }
    return absl::OkStatus();
  }

  Recorder& recorder_;
  const GroupSpec spec_;
  const int channel_;
  int rank_ = 0;
  int32_t group_ = 0;
};

// Calls what a step of the training loop calls (loop/gradient_step.h, loop/train.cc).
absl::Status run_step(const TrainConfig& config, RankModel& rank_model, ProcessGroups& groups,
                      Recorder& recorder) {
  const TransformerPlan& plan = rank_model.plan().model;
  const auto tokens = static_cast<size_t>(plan.token_count());
  const std::vector<int32_t> ids(tokens);
  const std::vector<float> weights(tokens, 1);
  const std::vector<int32_t> starts(plan.packed ? static_cast<size_t>(plan.attended_shape().rows())
                                                : 0);
  const Batch batch{.tokens = ids,
                    .targets = ids,
                    .weights = weights,
                    .dropout = {.seed = 1, .first_sample = 0},
                    .starts = starts};
  StepPasses passes(rank_model);
  const auto sum = passes.train(config.micro_batches(), [&](int32_t) { return batch; },
                                {.before_pass = [&](int32_t) { recorder.begin_pass(); }});
  if (!sum.ok()) return sum.status();
  recorder.begin_tail();
  {
    const OpRange range(rank_model.ops(), "reduce");
    if (auto status = rank_model.finish_passes(); !status.ok()) return status;
    rank_model.ops().sum_of_squares(RankModel::flat(rank_model.model().grads()));
    std::array<float, kStepTailElements> tail{};
    if (auto status = groups.world().all_reduce(tail, "step"); !status.ok()) return status;
  }
  return rank_model.update({.learning_rate = 1, .grad_scale = 1, .t = 1, .seed = 1});
}

}  // namespace

absl::StatusOr<StepTrace> record_step(const TrainConfig& requested, int32_t rank) {
  TrainConfig config = requested;
  config.cuda_graphs = false;  // a replay hides the operations
  const Mesh mesh = mesh_of(config.mesh);
  Recorder recorder;
  const auto backend = std::make_shared<RecordingBackend>(recorder);
  ProcessGroups groups(std::make_shared<LonelyTransport>(rank, mesh.ranks()), mesh, nullptr,
                       backend->memory());
  groups.use_factory([&](const GroupSpec& spec, int channel) {
    return std::make_unique<RecordingGroup>(recorder, spec, rank, channel);
  });
  RankModel rank_model(config, backend, Staging::kNo, groups, nullptr);
  if (auto status = run_step(config, rank_model, groups, recorder); !status.ok()) return status;
  return recorder.take();
}

}  // namespace muster::trainer
