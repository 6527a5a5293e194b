// A layer of experts distributed over several ranks, as are its groups' tokens, against one rank
// that has all.
#include "trainer_core/parallel/expert_exchange.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <ostream>

#include "tests/unit/trainer_core/ops/sequence_rows.h"
#include "tests/unit/trainer_core/parallel/local_ranks.h"
#include "trainer_core/base/tensor_views.h"
#include "trainer_core/model/expert_memory.h"
#include "trainer_core/model/token_layout.h"

namespace muster::trainer {
namespace {

constexpr int64_t kSequences = 2, kLength = 12, kExperts = 8, kChoices = 2, kWidth = 6, kMlp = 5;
constexpr MlpActivation kActivation{Activation::kSilu, false};

struct ExpertCase {
  RouterStyle style;
  int64_t capacity;  // capacity of a group; 0: no limit
  int expert_ranks;
  int context_ranks;  // ranks that share sequences

  friend std::ostream& operator<<(std::ostream& out, const ExpertCase& c) {
    return out << (c.style == RouterStyle::kPax ? "pax" : "maxtext") << "_capacity" << c.capacity
               << "_experts" << c.expert_ranks << "_context" << c.context_ranks;
  }
};

// The routing of some tokens and its memory.
struct RoutingMemory {
  RoutingMemory(const RoutingShape& of, const Values& logits)
      : shape(of),
        probs(logits),
        gates({of.tokens, kChoices}),
        density({of.groups, kExperts}),
        balance({of.groups}),
        experts(static_cast<size_t>(of.rows())),
        slots(experts),
        offsets(kExperts + 1) {}
  Routing view() {
    const auto ids = [&](std::vector<int32_t>& of) {
      return Tensor::i32(of.data(), {shape.tokens, kChoices});
    };
    return {.probs = Tensor::f32(&probs[0], {shape.tokens, kExperts}),
            .experts = ids(experts),
            .gates = gates,
            .slots = ids(slots),
            .offsets = Tensor::i32(offsets.data(), {kExperts + 1}),
            .density = density,
            .balance = balance,
            .order = order.empty()
                         ? Tensor{}
                         : Tensor::i32(order.data(), {static_cast<int64_t>(order.size())})};
  }

  RoutingShape shape;
  Values probs, gates, density, balance;
  std::vector<int32_t> experts, slots, offsets, order;
};

RoutingShape routing_shape(const ExpertCase& c, int64_t sequences) {
  return {.tokens = sequences * kLength,
          .groups = c.style == RouterStyle::kPax ? sequences / kSequences : sequences,
          .experts = kExperts,
          .per_token = kChoices,
          .capacity = c.capacity,
          .style = c.style,
          .balance_weight = 0.1};
}

// Everything that the layer gives and its gradients.
struct Results {
  Values out = Values({0}), dx = out, dlogits = out, d_in = out, d_down = out;
};

class Experts : public testing::TestWithParam<ExpertCase> {
 protected:
  Experts() : one_rank_(routing_shape(GetParam(), sequences_), logits_), whole_(on_one_rank()) {}

  // Computes like the transformer.
  Results on_one_rank() {
    const auto ops = cpu_ops(2);
    const RoutingShape shape = one_rank_.shape;
    const Routing routing = one_rank_.view();
    Results r{Values({tokens_, kWidth}), Values({tokens_, kWidth}), Values({tokens_, kExperts}),
              w_in_, w_down_};
    Values rows({shape.rows(), kWidth}), gate_up({shape.rows(), kMlp}), act = gate_up;
    Values d_act = gate_up, d_gates({tokens_, kChoices});
    ops->route(shape, weights_, routing);
    ops->dispatch(routing.slots, x_, rows);
    ops->expert_matmul(routing.offsets, rows, w_in_, gate_up);
    ops->activate(kActivation, gate_up, act);
    ops->expert_matmul(routing.offsets, act, w_down_, rows);
    ops->combine(routing.slots, routing.gates, rows, r.out);

    ops->dispatch(routing.slots, dout_, rows);
    ops->expert_matmul_dx(routing.offsets, rows, w_down_, d_act);
    ops->combine_backward(routing.slots, routing.gates, act, d_act, d_gates);
    ops->expert_matmul_dw(routing.offsets, rows, act, r.d_down, Accumulate::kNo);
    ops->activate_backward(kActivation, d_act, gate_up, gate_up);
    ops->dispatch(routing.slots, x_, rows);
    ops->expert_matmul_dw(routing.offsets, gate_up, rows, r.d_in, Accumulate::kNo);
    ops->expert_matmul_dx(routing.offsets, gate_up, w_in_, rows);
    ops->dispatch_backward(routing.slots, rows, r.dx);
    ops->route_backward(shape, weights_, d_gates, routing);
    r.dlogits = one_rank_.probs;
    return r;
  }

  // Returns the rows of `positions` in expert rank `expert`'s batch.
  Values part(const Values& whole, int expert, const Positions& positions) const {
    const int64_t width = whole.size() / tokens_, batch = kSequences * kLength * width;
    Values of_batch({kSequences * kLength, width});
    for (int64_t i = 0; i < batch; ++i) of_batch[i] = whole[expert * batch + i];
    return rank_rows(of_batch, kSequences, kLength, positions);
  }

  const int64_t sequences_ = kSequences * GetParam().expert_ranks;
  const int64_t tokens_ = sequences_ * kLength;
  Values logits_ = Values::random({tokens_, kExperts}, 1, 2);
  Values weights_ = Values::random({tokens_}, 2);
  Values x_ = Values::random({tokens_, kWidth}, 3), dout_ = Values::random({tokens_, kWidth}, 4);
  Values w_in_ = Values::random({kExperts, kMlp, kWidth}, 5);
  Values w_down_ = Values::random({kExperts, kWidth, kMlp}, 6);
  RoutingMemory one_rank_;
  Results whole_;
};

// A rank's side of the layer.
class ExpertRank {
 public:
  ExpertRank(Ops& ops, ProcessGroup& group, const RoutingShape& shape)
      : ops_(ops),
        most_(received_rows_max(shape, group.size())),
        own_experts_(kExperts / group.size()),
        staging_({most_, kWidth}),
        exchange_(ops, group, kExperts, staging_) {}

  // The rank's experts' weights and gradients are slices of the whole ones.
  void run(RoutingMemory& memory, Values weights, Values x, Values dout, Tensor w_in, Tensor w_down,
           Results& r) {
    const RoutingShape& shape = memory.shape;
    const Routing routing = memory.view();
    ops_.route(shape, weights, routing);
    const int64_t own = shape.own_tokens(), rows_max = own * kChoices;
    const Tensor slots = rows_at(routing.slots, shape.first_own, own);
    const Tensor gates = rows_at(routing.gates, shape.first_own, own);
    std::vector<int32_t> begins(static_cast<size_t>(own_experts_ + 1)), none(kExperts);
    const Tensor offsets = Tensor::i32(begins.data(), {own_experts_ + 1});
    ExpertCounts counts{none, none};
    const ExpertTraffic traffic{routing.offsets, &counts, offsets};
    ASSERT_TRUE(exchange_.count(traffic, "counts").ok());
    const int64_t received = begins.back();
    ASSERT_EQ(counts.rows_received(), received);
    ASSERT_EQ(counts.rows_sent(), memory.offsets.back());
    ASSERT_LE(received, most_);

    Values rows({rows_max, kWidth}), theirs({received, kWidth}), gate_up({received, kMlp});
    Values act = gate_up, d_act = gate_up, d_gates({own, kChoices});
    const auto to_experts = [&](const Tensor& to) {
      ASSERT_TRUE(exchange_.to_experts(traffic, rows, to, "there").ok());
    };
    const auto to_tokens = [&](const Tensor& from) {
      ASSERT_TRUE(exchange_.to_tokens(traffic, from, rows, "back").ok());
    };
    ops_.dispatch(slots, x, rows);
    to_experts(theirs);
    ops_.expert_matmul(offsets, theirs, w_in, gate_up);
    ops_.activate(kActivation, gate_up, act);
    Values given = theirs;
    ops_.expert_matmul(offsets, act, w_down, given);
    to_tokens(given);
    ops_.combine(slots, gates, rows, r.out);

    ops_.dispatch(slots, dout, rows);
    to_experts(given);
    ops_.expert_matmul_dx(offsets, given, w_down, d_act);
    Values gate_rows({rows_max}), own_gates({received}), own_d_gates({received});
    std::vector<int32_t> in_order(static_cast<size_t>(received));
    std::iota(in_order.begin(), in_order.end(), 0);
    ASSERT_TRUE(exchange_
                    .combine_backward(traffic, {slots, gates, act, d_act, d_gates},
                                      {gate_rows, own_gates, own_d_gates,
                                       Tensor::i32(in_order.data(), {received})},
                                      "gates")
                    .ok());
    ops_.expert_matmul_dw(offsets, given, act, r.d_down, Accumulate::kNo);
    ops_.activate_backward(kActivation, d_act, gate_up, gate_up);
    ops_.expert_matmul_dw(offsets, gate_up, theirs, r.d_in, Accumulate::kNo);
    ops_.expert_matmul_dx(offsets, gate_up, w_in, given);
    to_tokens(given);
    ops_.dispatch_backward(slots, rows, r.dx);
    ops_.route_backward(shape, weights, d_gates, routing);
    for (int64_t i = 0; i < r.dlogits.size(); ++i)
      r.dlogits[i] = memory.probs[shape.first_own * kExperts + i];
  }

 private:
  Ops& ops_;
  int64_t most_, own_experts_;
  Values staging_;
  ExpertExchange exchange_;
};

TEST_P(Experts, OnSeveralRanksAreThoseOfOne) {
  const auto [style, capacity, expert_ranks, context_ranks] = GetParam();
  const int64_t dropped = std::ranges::count(one_rank_.slots, -1);
  EXPECT_EQ(dropped > 0, capacity > 0);
  std::vector<Results> results(static_cast<size_t>(expert_ranks * context_ranks));
  std::atomic<int64_t> dropped_by_ranks = 0;
  on_local_ranks(
      expert_ranks * context_ranks,
      [&, expert_ranks = expert_ranks, context_ranks = context_ranks](const LocalRank& rank) {
        const int expert = rank.group.rank() / context_ranks,
                  context = rank.group.rank() % context_ranks;
        const auto group = rank.subgroup(expert_ranks, [&, context_ranks = context_ranks](int i) {
          return i * context_ranks + context;
        });
        // The gathered rows of the ranks that share the sequences.
        std::vector<TokenRows> sharing;
        for (int i = 0; i < context_ranks; ++i)
          sharing.push_back({context_positions(kLength, {i, context_ranks})});
        RoutingShape shape = routing_shape(GetParam(), kSequences);
        shape.own = shape.tokens / context_ranks;
        shape.first_own = context * shape.own;
        Values logits({shape.tokens, kExperts}), weights({shape.tokens});
        for (int i = 0; i < context_ranks; ++i) {
          const Positions& theirs = sharing[static_cast<size_t>(i)].positions;
          const auto gather = [&](const Values& whole, Values& to) {
            const Values rows = part(whole, expert, theirs);
            for (int64_t j = 0; j < rows.size(); ++j) to[i * rows.size() + j] = rows[j];
          };
          gather(logits_, logits);
          gather(weights_, weights);
        }
        RoutingMemory memory(shape, logits);
        if (context_ranks > 1)
          memory.order = gathered_order(kSequences, kLength, sharing, shape.own);

        const Positions& own = sharing[static_cast<size_t>(context)].positions;
        const int64_t experts = kExperts / expert_ranks, each = kMlp * kWidth;
        Values w_in = w_in_, w_down = w_down_;
        const auto slice = [&](Values& of, int64_t out, int64_t in) {
          return Tensor::f32(&of[expert * experts * each], {experts, out, in});
        };
        Results& r = results[rank.index()];
        r = {Values({shape.own, kWidth}), Values({shape.own, kWidth}),
             Values({shape.own, kExperts}), Values({experts, kMlp, kWidth}),
             Values({experts, kWidth, kMlp})};
        ExpertRank(rank.ops, *group, shape)
            .run(memory, weights, part(x_, expert, own), part(dout_, expert, own),
                 slice(w_in, kMlp, kWidth), slice(w_down, kWidth, kMlp), r);
        expect_near(r.out, as_double(part(whole_.out, expert, own)), 1e-6);
        expect_near(r.dx, as_double(part(whole_.dx, expert, own)), 1e-6);
        expect_near(r.dlogits, as_double(part(whole_.dlogits, expert, own)), 2e-6);
        for (int64_t i = 0; i < shape.own * kChoices; ++i)
          dropped_by_ranks +=
              memory.slots[static_cast<size_t>(shape.first_own * kChoices + i)] < 0 ? 1 : 0;
        // A group is counted once, by the rank that has it.
        const int64_t groups = shape.groups;
        for (int64_t i = 0; i < groups; ++i)
          EXPECT_NEAR(memory.balance[i], one_rank_.balance[expert * groups + i], 1e-6);
      });
  EXPECT_EQ(dropped_by_ranks, dropped);
  // An expert's gradient is the sum over the ranks that have it.
  std::vector<double> d_in(static_cast<size_t>(w_in_.size())), d_down = d_in;
  for (size_t i = 0; i < results.size(); ++i) {
    const auto first =
        static_cast<size_t>(results[i].d_in.size()) * (i / static_cast<size_t>(context_ranks));
    for (int64_t j = 0; j < results[i].d_in.size(); ++j) {
      d_in[first + static_cast<size_t>(j)] += results[i].d_in[j];
      d_down[first + static_cast<size_t>(j)] += results[i].d_down[j];
    }
  }
  expect_near(whole_.d_in, d_in, 2e-6);
  expect_near(whole_.d_down, d_down, 2e-6);
}

std::vector<ExpertCase> expert_cases() {
  std::vector<ExpertCase> all;
  for (const RouterStyle style : {RouterStyle::kMaxText, RouterStyle::kPax}) {
    for (const int64_t capacity : {0, 3}) {
      for (const auto& [experts, context] :
           {std::pair(1, 1), std::pair(2, 1), std::pair(8, 1), std::pair(1, 2), std::pair(2, 3)}) {
        all.push_back({style, capacity, experts, context});
      }
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Meshes, Experts, testing::ValuesIn(expert_cases()));

// Far more for one rank than for the others: the bound is reached and not exceeded.
TEST(ExpertRows, Bound) {
  RoutingShape shape{.tokens = 10, .experts = 8, .per_token = 2};
  EXPECT_EQ(received_rows_max(shape, 2), 2 * 10 * 2);
  EXPECT_EQ(received_rows_max(shape, 8), 8 * 10);  // a token chooses the one expert of a rank once
  shape.own = 5;
  EXPECT_EQ(received_rows_max(shape, 2), 2 * 5 * 2);
  shape.capacity = 1;
  EXPECT_EQ(received_rows_max(shape, 2), 2 * 4);
}

TEST(ExpertExchangeDeathTest, ExpertsThatDoNotDivide) {
  const LocalWorld world(3, std::chrono::milliseconds(1000));
  const auto group = world.join(0, nullptr, "expert");
  const auto ops = cpu_ops(1);
  EXPECT_DEATH(ExpertExchange(*ops, *group, 8, {}), "8 experts on 3 ranks");
}

}  // namespace
}  // namespace muster::trainer
