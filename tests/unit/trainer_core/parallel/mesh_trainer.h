// Trains without the training loop: each rank of a mesh is a thread that computes the steps. Merges
// the results of all ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/random/philox.h"
#include "tests/unit/trainer_core/on_mesh.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/loop/gradient_step.h"
#include "trainer_core/startup/frozen_parameters.h"

namespace muster::trainer {

// The sent bytes, by the name of the group and by kind.
using SentByGroup = std::map<std::string, std::map<CollectiveKind, uint64_t>>;

struct MeshRun {
  std::vector<StepRecord> steps;  // the records of rank 0
  // All parameters in the table's order, from the ranks with coordinate 0 along the data axis.
  std::vector<float> params;
  absl::Status status;         // the first error of any rank
  SentByGroup sent;            // by rank 0, in all steps
  uint64_t message_bytes = 0;  // bytes of all ranks' sends

  std::vector<double> losses() const {
    std::vector<double> losses;
    for (const StepRecord& step : steps) losses.push_back(step.loss);
    return losses;
  }
};

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, static_cast<double>(std::abs(a[i] - b[i])));
  return largest;
}

inline void expect_same_training(const MeshRun& run, const MeshRun& alone,
                                 const std::string& what) {
  ASSERT_TRUE(run.status.ok()) << what << ": " << run.status;
  ASSERT_EQ(run.steps.size(), alone.steps.size());
  for (size_t i = 0; i < run.steps.size(); ++i) {
    const StepRecord &ours = run.steps[i], &theirs = alone.steps[i];
    ASSERT_NEAR(ours.loss, theirs.loss, 1e-5 * theirs.loss) << what << ", step " << i;
    ASSERT_EQ(ours.total_weights, theirs.total_weights) << what;
    ASSERT_EQ(ours.experts.has_value(), theirs.experts.has_value()) << what;
    if (!ours.experts) continue;
    ASSERT_NEAR(ours.experts->balance_loss, theirs.experts->balance_loss, 1e-5)
        << what << ", step " << i;
    ASSERT_EQ(ours.experts->dropped_fraction, theirs.experts->dropped_fraction)
        << what << ", step " << i;
  }
  // Compares only the first norm: in models this small, later norms differ a thousand times more
  // than the parameters do.
  ASSERT_NEAR(run.steps[0].raw_grad_norm / alone.steps[0].raw_grad_norm, 1, 1e-6) << what;
  ASSERT_LT(largest_difference(run.params, alone.params), 1e-4) << what;
}

// Packed sequences of documents of one or more tokens. The last token of a document has weight 0.
// The contents depend only on the number of the sequence.
class PackedDocuments final : public Samples {
 public:
  explicit PackedDocuments(int32_t vocabulary) : vocabulary_(static_cast<uint32_t>(vocabulary)) {}

  uint64_t size() const override { return 64; }
  absl::Status read(uint64_t number, const SequenceSpans& out) override {
    const Philox philox{.key = 7, .stream = number};
    int32_t start = 0;
    for (size_t i = 0; i < out.tokens.size(); ++i) {
      const auto draw = philox(i);
      const bool ends = draw[2] % 4 == 0;
      out.tokens[i] = static_cast<int32_t>(draw[0] % vocabulary_);
      out.targets[i] = static_cast<int32_t>(draw[1] % vocabulary_);
      out.weights[i] = ends ? 0.0F : 1.0F;
      out.starts[i] = start;
      if (ends) start = static_cast<int32_t>(i) + 1;
    }
    return absl::OkStatus();
  }

 private:
  uint32_t vocabulary_;
};

inline TrainingData packed_documents(const TrainConfig& config) {
  TrainingData data;
  data.train.push_back({std::make_unique<PackedDocuments>(config.model.vocab_size), 1});
  return data;
}

using EachStep = std::function<void(ProcessGroups& groups, RankModel& rank_model, int64_t step)>;

// The context of a rank whose progress page and log lines are not read.
class QuietContext {
 public:
  explicit QuietContext(ProcessGroups& groups) : groups_(groups) {}
  TrainContext get() {
    return {.groups = groups_,
            .page = *page_,
            .out = out_,
            .err = out_,
            .signals = signals_,
            .on_step = nullptr};
  }

 private:
  ProcessGroups& groups_;
  std::unique_ptr<ProgressWriter> page_ = ProgressWriter::anonymous({});
  std::ostringstream out_;
  StopSignals signals_;
};

class MeshTrainer {
 public:
  // Trains and returns the results of all ranks. `each_step` is called before every step on every
  // rank; `transport_of` wraps the transport of each rank.
  static MeshRun run(const TrainConfig& config, const EachStep& each_step = nullptr,
                     const TransportOf& transport_of = nullptr) {
    MeshRun all;
    all.params.resize(parameters_of(config));
    std::mutex mutex;
    on_mesh(
        mesh_of(config.mesh),
        [&](ProcessGroups& groups) {
          MeshRun own = run_rank(config, groups, all.params, each_step);
          const std::lock_guard lock(mutex);
          all.status.Update(own.status);
          for (const auto& [group, kinds] : own.sent) {
            if (kinds.contains(CollectiveKind::kSend))
              all.message_bytes += kinds.at(CollectiveKind::kSend);
          }
          if (groups.rank() != 0) return;
          all.steps = std::move(own.steps);
          all.sent = std::move(own.sent);
        },
        transport_of);
    return all;
  }

  // Trains one rank. Returns its steps, sent bytes and error. Writes the parameters that it stores
  // to `params`, which has the complete table.
  static MeshRun run_rank(const TrainConfig& config, ProcessGroups& groups, std::span<float> params,
                          const EachStep& each_step = nullptr) {
    QuietContext rank(groups);
    const TrainContext context = rank.get();
    TrainingData read = config.packed() ? packed_documents(config) : TrainingData();
    const auto data = StepData::training(config, groups.rank(), read);
    RankModel rank_model(config, 1, Staging::kNo, groups);
    begin(config, rank_model);
    GradientStep gradients(config, context, rank_model, *data, read.pairs_max);
    MeshRun run;
    for (int64_t step = 0; step < config.steps && run.status.ok(); ++step) {
      if (each_step) each_step(groups, rank_model, step);
      run.status = make_step(config, gradients, rank_model, *data, step, run.steps);
    }
    run.sent = sent_bytes(groups);
    if (groups.mesh().coordinate(groups.rank())[0] != 0) return run;
    for_stored(rank_model.plan().model.sharding.layout, [&](size_t stored, size_t in_table) {
      const Tensor all = rank_model.model().parameters();
      params[in_table] = all.dtype == DType::kBf16
                             ? static_cast<const Bf16*>(all.data)[stored].value()
                             : all.f32()[stored];
    });
    return run;
  }

  static size_t parameters_of(const TrainConfig& config) {
    return static_cast<size_t>(parameter_count(model_params(config.model)));
  }

 private:
  static void begin(const TrainConfig& config, RankModel& rank_model) {
    const ShardLayout& layout = rank_model.plan().model.sharding.layout;
    std::vector<float> whole(static_cast<size_t>(parameter_count(layout.table())));
    init_params(layout.table(), config.init_weights_seed, whole.data());
    // Perturbs the parameters, so that biases and gains differ from their initial values.
    for (size_t i = 0; i < whole.size(); ++i) whole[i] += 0.01F * std::sin(static_cast<float>(i));
    const Tensor all = rank_model.model().parameters();
    for_stored(layout, [&](size_t stored, size_t in_table) {
      if (all.dtype == DType::kBf16) {
        static_cast<Bf16*>(all.data)[stored] = Bf16::round(whole[in_table]);
      } else {
        all.f32()[stored] = whole[in_table];
      }
    });
    if (config.model.lora.enabled()) {
      draw_base(config, rank_model, 1);
      rank_model.parameters_changed();
    }
  }

  // Calls visit(index in the rank's block, index in the complete table) for each stored element.
  template <class Visit>
  static void for_stored(const ShardLayout& layout, const Visit& visit) {
    for (const ShardPiece& piece : layout.pieces()) {
      const ParamSpec& spec = layout.table()[piece.param];
      const TensorBox& box = layout.row(piece).box;
      for (int64_t i = 0; i < piece.count; ++i) {
        visit(static_cast<size_t>(piece.offset + i),
              static_cast<size_t>(spec.offset + in_tensor(spec, box, piece.first + i)));
      }
    }
  }

  // Returns the index in the tensor of an element of the box.
  static int64_t in_tensor(const ParamSpec& spec, const TensorBox& box, int64_t element) {
    int64_t number = 0, stride = 1;
    for (size_t dim = spec.shape.size(); dim-- > 0;) {
      number += (box.begin[dim] + element % box.extent[dim]) * stride;
      element /= box.extent[dim];
      stride *= spec.shape[dim];
    }
    return number;
  }

  // Makes a step as the loop in train.cc does.
  static absl::Status make_step(const TrainConfig& config, GradientStep& gradients,
                                RankModel& rank_model, StepData& data, int64_t step,
                                std::vector<StepRecord>& records) {
    const LossSum local = gradients.compute(static_cast<uint64_t>(step) * data.samples_per_step());
    const auto reduced = gradients.reduce(local, /*saving=*/false);
    if (!reduced.ok()) return reduced.status();
    if (auto status = gradients.data_verdict(*reduced); !status.ok()) return status;
    records.push_back(gradients.record(step, /*updates=*/step, *reduced));
    const StepRecord& record = records.back();
    const double clip = clip_factor(record.raw_grad_norm, config.optimizer.clipping_threshold);
    return rank_model.update({.learning_rate = record.learning_rate,
                              .grad_scale = clip / GradientStep::divisor(*reduced),
                              .t = step + 1});
  }

  static SentByGroup sent_bytes(const ProcessGroups& groups) {
    SentByGroup sent;
    groups.for_each([&](const ProcessGroup& group) {
      for (uint32_t i = 0; i <= static_cast<uint32_t>(CollectiveKind::kSendRecv); ++i) {
        const auto kind = static_cast<CollectiveKind>(i);
        if (const uint64_t bytes = group.sent(kind).total; bytes > 0)
          sent[group.name()][kind] += bytes;
      }
    });
    return sent;
  }
};

// The differences between two trainings on one rank, in bf16 and in fp32.
struct Bf16Band {
  MeshRun alone;      // the training in bf16
  double losses = 0;  // largest relative difference of a step's loss
  double params = 0;  // largest absolute difference of a parameter
};

// Returns the largest relative difference between the losses of two trainings.
inline double largest_loss_difference(const MeshRun& a, const MeshRun& b) {
  EXPECT_EQ(a.steps.size(), b.steps.size());
  double largest = 0;
  for (size_t i = 0; i < a.steps.size(); ++i) {
    const double difference = std::abs(a.steps[i].loss / b.steps[i].loss - 1);
    EXPECT_TRUE(std::isfinite(difference)) << "step " << i;
    largest = std::max(largest, difference);
  }
  return largest;
}

// Trains `config`, which must have one rank, in bf16 and in fp32.
inline Bf16Band bf16_band(TrainConfig config) {
  const MeshRun exact = MeshTrainer::run(config);
  config.dtype = ComputeType::kBfloat16;
  Bf16Band band{.alone = MeshTrainer::run(config)};
  band.losses = largest_loss_difference(band.alone, exact);
  band.params = largest_difference(band.alone.params, exact.params);
  EXPECT_GT(band.losses, 1e-6);
  return band;
}

}  // namespace muster::trainer
