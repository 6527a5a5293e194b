// The CUDA backend's use of libraries, tested with test doubles (libraries.h): results compared
// with the CPU's, use of the scratch, and the notes when a library is not used.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/both_backends.h"
#include "tests/gpu/emulated/libraries.h"
#include "trainer_core/ops/cuda/device/library_answer.h"

namespace muster::trainer {
namespace {

using emulated::libraries;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::unique_ptr<Ops> ops_with(size_t scratch_bytes) {
  return cuda_ops({.scratch_bytes = scratch_bytes, .algorithms_path = {}});
}

// A layer's tensors on both sides.
struct Layer {
  explicit Layer(AttentionShape of)
      : shape(of),
        qkv(Both::random(DType::kBf16, {shape.rows(), shape.qkv_width()}, 1, 2)),
        dout(Both::random(DType::kBf16, {shape.rows(), shape.out_width()}, 2)),
        out(DType::kBf16, {shape.rows(), shape.out_width()}),
        dqkv(DType::kBf16, {shape.rows(), shape.qkv_width()}),
        lse(DType::kF32, {shape.batch, shape.heads, shape.seq_len}),
        workspace(DType::kF32, {std::max(cpu_attention_elements(shape, 2),
                                         cpu_attention_backward_elements(shape, 2))}) {}

  void compute(Ops& ops, Side side) {
    ops.attention(shape, qkv.on(side), {}, out.on(side), lse.on(side), workspace.workspace(side));
    ops.attention_backward(shape, qkv.on(side), {}, out.on(side), lse.on(side), dout.on(side),
                           dqkv.on(side), {}, Accumulate::kNo, workspace.workspace(side));
    ops.synchronize();
  }
  void expect_the_cpus() {
    compute(*backends().cpu, Side::kCpu);
    expect_same(out, 2e-2, "out");
    expect_same(lse, 1e-3, "lse");
    expect_same(dqkv, 4e-2, "dqkv");
  }

  AttentionShape shape;
  Both qkv, dout, out, dqkv, lse, workspace;
};

// Returns how much a call adds to the library's counts: (forward, backward).
template <class Call>
std::vector<int64_t> counted(const Call& call) {
  const emulated::Libraries before = libraries();
  call();
  return {libraries().attentions - before.attentions,
          libraries().attention_gradients - before.attention_gradients};
}

class AttentionByLibrary : public testing::TestWithParam<AttentionShape> {};
INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionByLibrary,
    testing::Values(
        AttentionShape{.batch = 2, .seq_len = 20, .heads = 4, .kv_heads = 2, .head_dim = 8},
        AttentionShape{
            .batch = 1, .seq_len = 33, .heads = 2, .kv_heads = 2, .head_dim = 16, .window = 9},
        AttentionShape{
            .batch = 1, .seq_len = 12, .heads = 2, .kv_heads = 1, .head_dim = 256, .window = 1},
        AttentionShape{.batch = 2,
                       .seq_len = 16,
                       .heads = 2,
                       .kv_heads = 1,
                       .head_dim = 8,
                       .scale = 0.5,
                       .window = 16},
        // The shape on ranks that exchange positions for heads.
        AttentionShape{.batch = 1,
                       .seq_len = 20,
                       .heads = 1,
                       .kv_heads = 1,
                       .head_dim = 8,
                       .positions = Positions::first(20)}));

TEST_P(AttentionByLibrary, EqualsTheCpus) {
  Layer layer(GetParam());
  const auto ops = ops_with(size_t{4} << 20);
  EXPECT_THAT(counted([&] { layer.compute(*ops, Side::kGpu); }), ElementsAre(1, 1));
  layer.expect_the_cpus();
  EXPECT_THAT(ops->take_notes(), IsEmpty());
}

// One sequence's scores take 20 x 20 x 2 bytes per head: of 6 sequences with 4 heads and 2 key
// heads, a part has as many as fit in the scratch.
TEST(AttentionInParts, UsesPartsThatFitTheScratch) {
  const AttentionShape shape{.batch = 6, .seq_len = 20, .heads = 4, .kv_heads = 2, .head_dim = 8};
  constexpr size_t kSequence = 4 * 20 * 20 * 2;
  struct Case {
    size_t scratch;
    int64_t parts;
  };
  for (const auto& [scratch, parts] : std::vector<Case>{{6 * kSequence, 1},
                                                        {5 * kSequence, 2},
                                                        {2 * kSequence, 3},
                                                        {kSequence, 6},
                                                        {kSequence / 2, 12}}) {
    Layer layer(shape);
    const auto ops = ops_with(scratch);
    EXPECT_THAT(counted([&] { layer.compute(*ops, Side::kGpu); }), ElementsAre(1, parts))
        << scratch;
    layer.expect_the_cpus();
    EXPECT_THAT(ops->take_notes(), IsEmpty());
  }
}

TEST(AttentionInParts, FallsBackToBuiltInKernelsWithOneNote) {
  const AttentionShape shape{.batch = 2, .seq_len = 500, .heads = 1, .kv_heads = 1, .head_dim = 8};
  libraries().workspace_of_score = 1000;  // the smallest part needs 239 MiB
  Layer layer(shape);
  const auto ops = ops_with(size_t{2} << 20);
  const auto backward = [&] {
    ops->attention_backward(shape, layer.qkv.on(Side::kGpu), {}, layer.out.on(Side::kGpu),
                            layer.lse.on(Side::kGpu), layer.dout.on(Side::kGpu),
                            layer.dqkv.on(Side::kGpu), {}, Accumulate::kNo,
                            layer.workspace.workspace(Side::kGpu));
  };
  EXPECT_THAT(counted(backward), ElementsAre(0, 0));
  libraries().workspace_of_score = 2;
  EXPECT_THAT(
      ops->take_notes(),
      ElementsAre(
          "built-in kernels compute attention's backward pass of (B, S, H, K, h) = (2, "
          "500, 1, 1, 8) instead of cuDNN: it needs 239 MiB of scratch, 2 MiB are available"));
  libraries().workspace_of_score = 1000;
  backward();
  libraries().workspace_of_score = 2;
  EXPECT_THAT(ops->take_notes(), IsEmpty());
}

TEST(BuiltInAttention, NotesTheReason) {
  AttentionShape shape{
      .batch = 1, .seq_len = 8, .heads = 2, .kv_heads = 1, .head_dim = 8, .soft_cap = 3};
  Layer capped(shape);
  const auto ops = ops_with(size_t{4} << 20);
  EXPECT_THAT(counted([&] { capped.compute(*ops, Side::kGpu); }), ElementsAre(0, 0));
  capped.expect_the_cpus();
  EXPECT_THAT(ops->take_notes(),
              ElementsAre(HasSubstr("scores have a cap"), HasSubstr("scores have a cap")));
  Both starts(DType::kI32, {8});
  starts.set_ids({0, 0, 0, 0, 4, 4, 4, 4});
  shape.soft_cap = 0;
  shape.seq_len = 8;
  shape.batch = 1;
  shape.starts = starts.on(Side::kGpu);
  shape.heads = 1;
  Both qkv = Both::random(DType::kBf16, {8, 24}, 1), out(DType::kBf16, {8, 8}),
       lse(DType::kF32, {8});
  ops->attention(shape, qkv.on(Side::kGpu), {}, out.on(Side::kGpu), lse.on(Side::kGpu), {});
  EXPECT_THAT(ops->take_notes(), ElementsAre(HasSubstr("documents are packed into sequences")));
  ops->synchronize();
}

TEST(LibraryNotes, FormatOnlyNewKeys) {
  cuda::LibraryNotes notes;
  const cuda::LibraryAnswer none{.kind = cuda::LibraryAnswer::Kind::kNone, .why = "it is odd"};
  int calls = 0;
  const auto add = [&](const cuda::LibraryNotes::Key& key) {
    notes.add(
        "cuDNN", key, [&] { return "number " + std::to_string(++calls); }, none, 0);
  };
  add({"attention", {1, 2, 3, 4, 5}});
  add({"attention", {1, 2, 3, 4, 5}});
  add({"attention", {1, 2, 3, 4, 6}});
  add({"attention's blocks", {1, 2, 3, 4, 5}});
  EXPECT_THAT(notes.take(),
              ElementsAre("built-in kernels compute number 1 instead of cuDNN: it is odd",
                          HasSubstr("number 2"), HasSubstr("number 3")));
  add({"attention", {1, 2, 3, 4, 6}});
  EXPECT_THAT(notes.take(), IsEmpty());
}

using Kind = cuda::LibraryEpilogue::Kind;

// (16, 24) = (16, 8) (8, 24), with an epilogue's tensors, on both sides.
struct Fused {
  explicit Fused(DType of) : type(of) {}

  void compute(Ops& ops, Side side, const Epilogue& parts) {
    Epilogue epilogue = parts;
    if (epilogue.activate != Epilogue::Activate::kNo) epilogue.pre = pre.on(side);
    if (with_bias) epilogue.bias = bias.on(side);
    if (with_dbias) epilogue.dbias = dbias.on(side);
    epilogue.workspace = workspace.workspace(side);
    ops.fused_matmul(a.on(side), Transpose::kNo, b.on(side), Transpose::kNo, c.on(side), epilogue);
    ops.synchronize();
  }
  // Returns the epilogue by which the library has computed it; kNone: without one.
  Kind kind_of(Ops& ops, const Epilogue& parts) {
    const emulated::Libraries before = libraries();
    compute(*backends().cpu, Side::kCpu, parts);
    compute(ops, Side::kGpu, parts);
    const double bound = type == DType::kBf16 ? 3.0 / 128 : 1e-5;
    expect_same(c, bound, "c");
    expect_same(pre, bound, "pre");
    expect_same(dbias, bound, "dbias");
    for (size_t kind = 0; kind < before.products.size(); ++kind)
      if (libraries().products[kind] != before.products[kind]) return static_cast<Kind>(kind);
    ADD_FAILURE() << "no product of the library's";
    return Kind::kNone;
  }

  DType type;
  bool with_bias = false, with_dbias = false;
  Both a = Both::random(type, {16, 8}, 1), b = Both::random(DType::kF32, {8, 24}, 2);
  Both bias = Both::random(DType::kF32, {24}, 3), dbias = Both::random(DType::kF32, {24}, 4);
  Both pre = Both::random(type, {16, 24}, 5), c = Both(type, {16, 24});
  Both workspace = Both(DType::kF32, {cpu_bias_backward_elements(24)});
};

TEST(ProductsByLibrary, UseTheLibrarysEpilogues) {
  constexpr auto kForward = Epilogue::Activate::kForward, kBackward = Epilogue::Activate::kBackward;
  const auto ops = ops_with(size_t{1} << 20);
  for (const DType type : {DType::kF32, DType::kBf16}) {
    Fused fused(type);
    // In fp32 the library's tanh is not precise enough for GELU.
    const auto of_bf16 = [&](Kind kind) { return type == DType::kBf16 ? kind : Kind::kNone; };
    EXPECT_EQ(fused.kind_of(*ops, {}), Kind::kNone);
    EXPECT_EQ(fused.kind_of(*ops, {.activate = kForward}), of_bf16(Kind::kGelu));
    EXPECT_EQ(fused.kind_of(*ops, {.activate = kForward, .activation = Activation::kRelu}),
              Kind::kNone);
    EXPECT_EQ(fused.kind_of(*ops, {.activate = kBackward}), of_bf16(Kind::kGeluGradient));
    fused.with_bias = true;
    EXPECT_EQ(fused.kind_of(*ops, {}), Kind::kBias);
    EXPECT_EQ(fused.kind_of(*ops, {.activate = kForward}), of_bf16(Kind::kGeluBias));
    fused.with_bias = false;
    fused.with_dbias = true;
    EXPECT_EQ(fused.kind_of(*ops, {.activate = kBackward}), of_bf16(Kind::kGeluGradient));
    EXPECT_EQ(fused.kind_of(*ops, {.activate = kBackward, .accumulate = Accumulate::kYes}),
              of_bf16(Kind::kGeluGradient));
  }
  EXPECT_THAT(ops->take_notes(), IsEmpty());
}

// Only products of fp32 use TF32, and only if the backend allows it.
TEST(ProductsByLibrary, UseTf32WhereItIsAllowed) {
  for (const bool allowed : {false, true}) {
    const auto ops =
        cuda_ops({.scratch_bytes = size_t{1} << 20, .algorithms_path = {}, .allows_tf32 = allowed});
    for (const DType type : {DType::kF32, DType::kBf16}) {
      const int64_t before = libraries().tf32_products;
      Both a = Both::random(type, {16, 32}, 1), b = Both::random(type, {32, 24}, 2);
      Both c(DType::kF32, {16, 24});
      on_both([&](Ops& ops_of, Side side) {
        Ops& used = side == Side::kGpu ? *ops : ops_of;
        used.matmul(a.on(side), Transpose::kNo, b.on(side), Transpose::kNo, c.on(side),
                    Accumulate::kNo);
        used.synchronize();
      });
      const bool rounds = allowed && type == DType::kF32;
      EXPECT_EQ(libraries().tf32_products - before, rounds ? 1 : 0);
      // Rounding to 10 bits is visible, and smaller than 2^-11 of each factor.
      const double error = normalised_error(c);
      EXPECT_LT(error, rounds ? 2e-3 : 1e-5);
      if (rounds) {
        EXPECT_GT(error, 1e-5);
      }
    }
  }
}

TEST(ProductsByLibrary, UseBuiltInEpiloguesWhereTheLibraryHasNone) {
  const auto ops = ops_with(size_t{1} << 20);
  Fused fused(DType::kBf16);
  fused.with_bias = true;
  libraries().has_epilogues = false;
  EXPECT_EQ(fused.kind_of(*ops, {.activate = Epilogue::Activate::kForward}), Kind::kNone);
  libraries().has_epilogues = true;
  EXPECT_THAT(
      ops->take_notes(),
      ElementsAre(
          "built-in kernels compute bias and GELU of products of (m, n, k) = (16, 24, 8) of "
          "bf16 instead of cuBLASLt: it has no epilogues"));
  // Rounded operands and the bias need scratch.
  const auto small = ops_with(256);
  Both b = Both::random(DType::kF32, {8, 24}, 2), c(DType::kBf16, {16, 24});
  Both a = Both::random(DType::kBf16, {16, 8}, 1);
  on_both([&](Ops& ops_of, Side side) {
    Ops& used = side == Side::kGpu ? *small : ops_of;
    used.matmul(a.on(side), Transpose::kNo, b.on(side), Transpose::kNo, c.on(side),
                Accumulate::kNo);
    used.synchronize();
  });
  expect_same(c, 1.0 / 128, "c");
  EXPECT_THAT(small->take_notes(),
              ElementsAre(HasSubstr("it needs 1 MiB of scratch, 0 MiB are available")));
}

}  // namespace
}  // namespace muster::trainer
