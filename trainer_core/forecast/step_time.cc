#include "trainer_core/forecast/step_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "trainer_core/base/train_mesh.h"
#include "trainer_core/forecast/memory_forecast.h"
#include "trainer_core/forecast/step_recorder.h"

namespace muster::trainer {
namespace {

// The first micro-batch finds no gathered parameters, and the last one reduces the gradients of the
// data axis; those between are alike.
constexpr int32_t kDistinctMicroBatches = 3;

// The index of a recorded micro-batch that is like `micro_batch` of `all`.
int32_t like(int32_t micro_batch, int32_t all, int32_t traced) {
  if (micro_batch == 0) return 0;
  if (micro_batch + 1 == all) return traced - 1;
  return std::min(1, traced - 1);
}

void add(StepParts& to, const StepParts& from, double times = 1) {
  for (const auto& [name, seconds] : from) to[name] += times * seconds;
}

double sum_of(const StepParts& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0,
                         [](double sum, const auto& part) { return sum + part.second; });
}

std::vector<std::pair<std::string, double>> in_order(const StepParts& parts) {
  constexpr std::array kFirst = {kIdealGemms, kGemmLoss,      kAttentionPart, kMemoryKernels,
                                 kGaps,       kRecomputation, kOffloading};
  constexpr std::array kLast = {kOverlapSlowdown, kBubble, kUpdatePart, kHostTime, kStragglers};
  std::vector<std::pair<std::string, double>> out;
  std::map<std::string, double> rest(parts);
  const auto take = [&](auto& to, const std::string& name) {
    const auto part = rest.extract(name);
    if (!part.empty() && part.mapped() > 0) to.emplace_back(name, part.mapped());
  };
  for (const char* const name : kFirst) take(out, name);
  std::vector<std::pair<std::string, double>> last;
  for (const char* const name : kLast) take(last, name);
  for (const auto& [name, seconds] : rest)
    if (seconds > 0) out.emplace_back(name, seconds);
  out.insert(out.end(), last.begin(), last.end());
  return out;
}

// Adds what concerns the step as a whole.
StepTimeForecast finish(StepParts parts, double hidden, const StepCost& cost, int32_t nodes) {
  const StepConstants& constants = cost.constants();
  parts[kOverlapSlowdown] += constants.overlap_slowdown * std::max(hidden, 0.0);
  parts[kHostTime] += constants.step_ms / 1000;
  parts[kStragglers] = sum_of(parts) * constants.straggling * std::log2(std::max(nodes, 1));
  return {.seconds = sum_of(parts), .parts = in_order(parts)};
}

}  // namespace

// The durations of a stage's passes.
struct StepModel::StagePasses {
  struct Pass {
    double seconds = 0;
    StepParts parts;
  };
  // By kind, chunk and recorded micro-batch: passes without gradients that score pairs, and those
  // of the training.
  std::map<std::tuple<PassKind, int32_t, int32_t>, Pass> scores, passes;
  double message_seconds = 0;  // duration of a message to another stage
  double tail_seconds = 0;
  StepParts tail_parts;
  double hidden = 0;  // concurrent communication of a recorded micro-batch
};

absl::StatusOr<StepModel> StepModel::record(const TrainConfig& requested) {
  if (requested.only_evaluates()) {
    return absl::InvalidArgumentError(
        "eval_only=true: the job has no training step whose time could be forecast; leave it out");
  }
  StepModel model;
  TrainConfig config = requested;
  const Mesh mesh = mesh_of(config.mesh);
  model.shape_ = pipeline_shape(config);
  model.shape_.micro_batches = config.micro_batches();
  model.nodes_ = mesh.nodes();
  model.tflops_ = step_tflops(config);
  model.quantized_ = config.model.quantization.enabled();
  model.scoring_models_ = config.dpo.enabled ? 2 : 0;
  const int32_t stages = model.shape_.stages;
  const int32_t distinct = stages > 1 && model.shape_.chunks > 1 ? stages : kDistinctMicroBatches;
  model.traced_micro_batches_ = std::min(model.shape_.micro_batches, distinct);
  const int32_t sequences = config.micro_batch_sequences();
  if (stages > 1) {
    config.gradient_accumulation_steps = 1;
    config.pipeline_microbatches = model.traced_micro_batches_;
    config.per_device_batch_size = sequences * model.traced_micro_batches_;
  } else {
    config.gradient_accumulation_steps = model.traced_micro_batches_;
    config.pipeline_microbatches = 1;
    config.per_device_batch_size = sequences;
  }
  const std::vector<int32_t> ranks = largest_rank_of_each_stage(config);
  for (int32_t stage = 0; stage < stages; ++stage) {
    if (stage > 1 && stage + 1 < stages) continue;
    auto trace = record_step(config, ranks[static_cast<size_t>(stage)]);
    if (!trace.ok()) return trace.status();
    StageTrace traced{.trace = *std::move(trace), .scores = {}, .passes = {}};
    if (stages > 1) {
      const PipelineShape shape{stages, model.shape_.chunks, model.traced_micro_batches_};
      traced.passes = pipeline_schedule(shape, stage);
      if (config.dpo.enabled) traced.scores = forward_schedule(shape);
    }
    model.stages_.push_back(std::move(traced));
  }
  return model;
}

StepTimeForecast StepModel::forecast(const StepMachine& machine) const {
  const StepCost cost(machine.device, machine.constants);
  return shape_.stages > 1 ? forecast_pipeline(cost) : forecast_passes(cost);
}

StepTimeForecast StepModel::forecast_passes(const StepCost& cost) const {
  const StepTrace& trace = stages_.front().trace;
  const StepSchedule schedule = schedule_step(trace, cost);
  StepParts parts = schedule.tail_parts;
  for (int32_t kind = 0; kind <= scoring_models_; ++kind) {
    for (int32_t i = 0; i < shape_.micro_batches; ++i) {
      const int32_t recorded = like(i, shape_.micro_batches, traced_micro_batches_);
      add(parts, schedule.pass_parts[static_cast<size_t>(kind * traced_micro_batches_ + recorded)]);
    }
  }
  const double hidden =
      (schedule.concurrent - schedule.waited) * shape_.micro_batches / traced_micro_batches_;
  return finish(std::move(parts), hidden, cost, nodes_);
}

std::vector<StepModel::StagePasses> StepModel::stage_passes(const StepCost& cost) const {
  std::vector<StagePasses> all;
  for (const StageTrace& traced : stages_) {
    const StepSchedule schedule = schedule_step(traced.trace, cost);
    StagePasses stage{.scores = {},
                      .passes = {},
                      .tail_seconds = schedule.end - schedule.pass_ends.back(),
                      .tail_parts = schedule.tail_parts,
                      .hidden = (schedule.concurrent - schedule.waited) / traced_micro_batches_};
    size_t next = 0;  // the next pass of the schedule
    const auto take = [&](const std::vector<PipelinePass>& passes, auto& to) {
      for (const PipelinePass& pass : passes) {
        const double begin = next == 0 ? 0 : schedule.pass_ends[next - 1];
        to[{pass.kind, pass.chunk, pass.micro_batch}] = {schedule.pass_ends[next] - begin,
                                                         schedule.pass_parts[next]};
        ++next;
      }
    };
    for (int32_t model = 0; model < scoring_models_; ++model) take(traced.scores, stage.scores);
    take(traced.passes, stage.passes);
    const auto& sends = traced.trace.of(StepStream::kSend);
    if (!sends.empty()) stage.message_seconds = cost.seconds(sends.front(), traced.trace);
    all.push_back(std::move(stage));
  }
  return all;
}

const StepModel::StagePasses& StepModel::of_stage(const std::vector<StagePasses>& all,
                                                  int32_t stage) const {
  if (stage == 0) return all.front();
  if (stage + 1 == shape_.stages) return all.back();
  return all[1];
}

std::vector<std::vector<PassTime>> StepModel::run_pipeline(const std::vector<StagePasses>& stages,
                                                           bool scores) const {
  PipelineShape shape = shape_;
  // A stage scores with the second model while later stages still do so with the first.
  if (scores) shape.micro_batches *= scoring_models_;
  const int32_t count = shape.stages, runs = shape.virtual_stages();
  const auto index = [&](int32_t stage, const PipelinePass& pass) {
    const int32_t run = pass.chunk * count + stage;
    return (static_cast<size_t>(pass.kind) * static_cast<size_t>(runs) + static_cast<size_t>(run)) *
               static_cast<size_t>(shape.micro_batches) +
           static_cast<size_t>(pass.micro_batch);
  };
  // Arrival of each pass's result at the stage that needs it; negative: not computed yet.
  std::vector<double> arrivals(
      2 * static_cast<size_t>(runs) * static_cast<size_t>(shape.micro_batches), -1);
  // The result that a pass needs; itself if none.
  const auto needed = [&](int32_t stage, PipelinePass pass) -> std::pair<int32_t, PipelinePass> {
    if (pass.kind == PassKind::kForward) {
      if (stage > 0) return {stage - 1, pass};
      if (pass.chunk == 0) return {stage, pass};
      --pass.chunk;
      return {count - 1, pass};
    }
    if (stage + 1 < count) return {stage + 1, pass};
    if (pass.chunk + 1 < shape.chunks) {
      ++pass.chunk;
      return {0, pass};
    }
    return {stage, pass};
  };
  std::vector<std::vector<PipelinePass>> order;
  for (int32_t stage = 0; stage < count; ++stage)
    order.push_back(scores ? forward_schedule(shape) : pipeline_schedule(shape, stage));
  std::vector<std::vector<PassTime>> times(static_cast<size_t>(count));
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t stage = 0; stage < count; ++stage) {
      auto& own = times[static_cast<size_t>(stage)];
      const auto& passes = order[static_cast<size_t>(stage)];
      while (own.size() < passes.size()) {
        const PipelinePass& pass = passes[own.size()];
        const auto [from, input] = needed(stage, pass);
        const bool is_own = from == stage && input == pass;
        const double arrival = is_own ? 0 : arrivals[index(from, input)];
        if (arrival < 0) break;
        const StagePasses& costs = of_stage(stages, stage);
        const int32_t recorded = like(pass.micro_batch, shape.micro_batches, traced_micro_batches_);
        const double seconds =
            (scores ? costs.scores : costs.passes).at({pass.kind, pass.chunk, recorded}).seconds;
        const double begin = std::max(own.empty() ? 0 : own.back().time.end, arrival);
        own.push_back({pass, {begin, begin + seconds}});
        arrivals[index(stage, pass)] = begin + seconds + costs.message_seconds;
        moved = true;
      }
    }
  }
  return times;
}

std::vector<std::vector<PassTime>> StepModel::pipeline(const StepMachine& machine) const {
  if (shape_.stages == 1) return {};
  return run_pipeline(stage_passes(StepCost(machine.device, machine.constants)),
                      /*scores=*/false);
}

StepTimeForecast StepModel::forecast_pipeline(const StepCost& cost) const {
  const std::vector<StagePasses> stages = stage_passes(cost);
  const auto times = run_pipeline(stages, /*scores=*/false);
  const auto scores = run_pipeline(stages, /*scores=*/true);
  double scored = 0, end = 0;
  for (const auto& stage : scores)
    if (!stage.empty()) scored = std::max(scored, stage.back().time.end);
  int32_t last = 0;  // the stage that ends last
  for (int32_t stage = 0; stage < shape_.stages; ++stage) {
    const double own =
        times[static_cast<size_t>(stage)].back().time.end + of_stage(stages, stage).tail_seconds;
    if (own > end) {
      end = own;
      last = stage;
    }
  }
  const StagePasses& costs = of_stage(stages, last);
  StepParts parts = costs.tail_parts;
  const auto add_all = [&](const std::vector<PassTime>& passes, const auto& from, int32_t all) {
    for (const auto& [pass, time] : passes)
      add(parts,
          from.at({pass.kind, pass.chunk, like(pass.micro_batch, all, traced_micro_batches_)})
              .parts);
  };
  const auto stage = static_cast<size_t>(last);
  add_all(scores[stage], costs.scores, scoring_models_ * shape_.micro_batches);
  add_all(times[stage], costs.passes, shape_.micro_batches);
  parts[kBubble] = std::max(scored + end - sum_of(parts), 0.0);
  return finish(std::move(parts), costs.hidden * shape_.micro_batches, cost, nodes_);
}

nlohmann::json to_json(const StepTimeForecast& forecast, const StepModel& model,
                       const DeviceModel& device) {
  auto parts = nlohmann::json::array();
  for (const auto& [name, seconds] : forecast.parts)
    parts.push_back({{"name", name}, {"seconds", seconds}});
  return {{"seconds", forecast.seconds},
          {"parts", std::move(parts)},
          {"tflops", model.tflops().total()},
          {"tflops_causal", model.tflops().total_causal()},
          {"peak_tflops", device.gemm_tflops(model.quantized())}};
}

}  // namespace muster::trainer
