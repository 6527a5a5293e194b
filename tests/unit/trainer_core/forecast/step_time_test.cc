#include "trainer_core/forecast/step_time.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/meshes.h"
#include "tests/unit/trainer_core/forecast/recorded_step.h"
#include "tests/unit/trainer_core/forecast/step_machine.h"
#include "tests/unit/trainer_core/parallel/mesh_trainer.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/forecast/step_recorder.h"
#include "trainer_core/forecast/time_forecast.h"
#include "trainer_core/forecast/timeline.h"
#include "trainer_core/report/flops.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

const StepMachine kMachine = machine_with(8);

double gemm_flops(const StepTrace& trace) {
  double flops = 0;
  for (const TracedWork& work : trace.of(StepStream::kCompute))
    if (work.kind == WorkKind::kGemm && work.phase != StepPhase::kRecompute) flops += work.flops;
  return flops;
}

// The bytes that a rank sends: as the process groups count them (comm/comm.h).
double sent_bytes(const StepTrace& trace, const std::string& axes) {
  double bytes = 0;
  for (const auto& stream : trace.streams) {
    for (const TracedWork& work : stream) {
      if (work.kind != WorkKind::kCollective) continue;
      const CollectiveGroup& group = trace.groups[static_cast<size_t>(work.group)];
      if (group.name != axes) continue;
      const double n = group.ranks;
      switch (work.collective) {
        case CollectiveKind::kAllReduce:
          bytes += 2 * (n - 1) / n * work.bytes;
          break;
        case CollectiveKind::kAllGather:
          bytes += (n - 1) * work.bytes;
          break;
        case CollectiveKind::kRecv:
          break;
        case CollectiveKind::kSend:
        case CollectiveKind::kSendRecv:
          bytes += work.bytes;
          break;
        default:
          bytes += (n - 1) / n * work.bytes;
      }
    }
  }
  return bytes;
}

// The recorded GEMMs are those that MaxText's formula counts: any part of a step that were not
// recorded, or recorded twice, would show here.
TEST(StepRecorder, RecordsTheGemmsOfTheStep) {
  for (const RematPolicy policy : {RematPolicy::kNone, RematPolicy::kFull}) {
    TrainConfig config = config_with({1, 1, 1, 1, 1, 1, 1});
    config.remat_policy = policy;
    const double expected = step_tflops(config).learnable * 1e12;
    EXPECT_NEAR(gemm_flops(trace_of(config)) / expected, 1, 1e-9);
  }
}

TEST(StepRecorder, TensorRanksDivideTheGemms) {
  TrainConfig config = config_with({1, 1, 1, 1, 1, 1, 2});
  EXPECT_NEAR(gemm_flops(trace_of(config)) / (step_tflops(config).learnable * 1e12), 1, 1e-9);
}

// The recorded collectives send what the ranks of a training send. The forecast and the trainer
// part if this fails.
TEST(StepRecorder, SendsTheBytesOfATraining) {
  for (const Degrees& degrees :
       {Degrees{1, 1, 4, 1, 1, 1, 1}, Degrees{2, 1, 2, 1, 1, 1, 1}, Degrees{1, 1, 2, 1, 1, 1, 2},
        Degrees{1, 2, 1, 1, 1, 1, 2}, Degrees{1, 1, 2, 1, 2, 1, 1}, Degrees{1, 1, 1, 2, 1, 1, 1}}) {
    TrainConfig config = config_with(degrees);
    config.hardware = Hardware::kCpu;
    config.dtype = ComputeType::kFloat32;
    config.remat_policy = RematPolicy::kFull;
    config.steps = 2;
    const std::string what = mesh_of(config.mesh).to_string();
    const MeshRun run = MeshTrainer::run(config);
    ASSERT_TRUE(run.status.ok()) << what << run.status;
    std::map<std::string, double> sent;
    for (const auto& [group, kinds] : run.sent)
      for (const auto& [kind, bytes] : kinds)
        sent[group.substr(0, group.find('#'))] += static_cast<double>(bytes);
    const StepTrace trace = trace_of(config);
    for (const auto& [axes, bytes] : sent) {
      // The small reduction at the end of a step has slices that differ by an element.
      constexpr double kSlack = 256;
      EXPECT_NEAR(bytes, static_cast<double>(config.steps) * sent_bytes(trace, axes), kSlack)
          << what << ", " << axes;
    }
  }
}

TEST(StepRecorder, SendsTheBytesOfShardedParameters) {
  TrainConfig config = config_with({1, 1, 4, 1, 1, 1, 1});
  config.dtype = ComputeType::kFloat32;
  config.pipeline_microbatches = 1;
  // parallel/sharded_parameters.h: the embedding, the end and L + (L - 2) layers are gathered once.
  const StepTrace trace = trace_of(config);
  int gathers = 0, scatters = 0;
  for (const TracedWork& work : trace.of(StepStream::kOverlap)) {
    gathers += work.collective == CollectiveKind::kAllGather;
    scatters += work.collective == CollectiveKind::kReduceScatter;
  }
  const int layers = config.model.num_layers;
  EXPECT_EQ(gathers, 2 + layers + layers - 2);
  EXPECT_EQ(scatters, 2 + layers);
  EXPECT_GT(sent_bytes(trace, "fsdp"), 0);
}

// Ring attention receives a block while it computes with another one, which it sends.
TEST(StepRecorder, RingAttentionOverlapsItsMessages) {
  const StepTrace trace = trace_of(config_with({1, 1, 1, 1, 4, 1, 1}));
  EXPECT_FALSE(trace.of(StepStream::kRing).empty());
  const StepSchedule schedule = schedule_step(trace, StepCost(kMachine.device, kMachine.constants));
  bool overlaps = false;
  const auto& computed = schedule.streams[static_cast<size_t>(StepStream::kCompute)];
  for (const WorkTime& message : schedule.streams[static_cast<size_t>(StepStream::kRing)])
    for (const WorkTime& work : computed)
      overlaps |= work.begin < message.end && message.begin < work.end;
  EXPECT_TRUE(overlaps);
}

TEST(StepRecorder, TheComputationWaitsForGathers) {
  const StepTrace trace = trace_of(config_with({1, 1, 4, 1, 1, 1, 1}));
  size_t waits = 0;
  for (const TracedWork& work : trace.of(StepStream::kCompute)) waits += work.waits.size();
  size_t gathers = 0;
  for (const TracedWork& work : trace.of(StepStream::kOverlap)) {
    gathers += work.collective == CollectiveKind::kAllGather;
    EXPECT_LE(static_cast<size_t>(work.after), trace.of(StepStream::kCompute).size());
  }
  EXPECT_GE(waits, gathers);
}

TEST(StepRecorder, EveryMeshIsRecordedTheSameTwice) {
  int meshes = 0;
  for (const int32_t ranks : {2, 4}) {
    for (const Degrees& degrees : factorisations(ranks)) {
      const TrainConfig config = config_with(degrees);
      if (!validate(config).ok()) continue;
      ++meshes;
      const auto first = StepModel::record(config), again = StepModel::record(config);
      ASSERT_TRUE(first.ok() && again.ok());
      const double seconds = first->forecast(kMachine).seconds;
      EXPECT_GT(seconds, 0);
      EXPECT_EQ(seconds, again->forecast(kMachine).seconds) << mesh_of(config.mesh).to_string();
    }
  }
  EXPECT_GT(meshes, 15);
}

// The parts are counted per work, the end of the schedule is not. Without a pipeline, and without
// what concerns the step as a whole, both are the time of the step.
TEST(StepTime, PartsAddUp) {
  StepMachine machine = kMachine;
  machine.constants.overlap_slowdown = 0;
  for (const Degrees& degrees : {Degrees{2, 1, 2, 1, 1, 1, 1}, Degrees{1, 1, 1, 1, 2, 1, 2}}) {
    const auto model = StepModel::record(config_with(degrees));
    ASSERT_TRUE(model.ok()) << model.status();
    const StepTimeForecast forecast = model->forecast(machine);
    const double end =
        schedule_step(model->first_stage(), StepCost(machine.device, machine.constants)).end;
    EXPECT_NEAR(forecast.seconds / end, 1, 1e-9);
    double sum = 0;
    for (const auto& [name, seconds] : forecast.parts) sum += seconds;
    EXPECT_NEAR(sum / end, 1, 1e-9);
  }
}

TEST(StepTime, AStepOfAPipelineEndsAfterItsPasses) {
  StepMachine machine = kMachine;
  machine.constants.overlap_slowdown = 0;
  const auto model = StepModel::record(config_with({1, 2, 1, 1, 1, 1, 2}));
  ASSERT_TRUE(model.ok()) << model.status();
  double passes_end = 0;
  for (const auto& stage : model->pipeline(machine))
    passes_end = std::max(passes_end, stage.back().time.end);
  EXPECT_GT(passes_end, 0);
  EXPECT_GT(model->forecast(machine).seconds, passes_end) << "the optimizer comes last";
}

TEST(StepTimes, AnswersLinesAndRefusesWrongTypes) {
  std::map<std::string, StepModel> models;
  const auto problem = [&](const nlohmann::json& line) {
    return std::string(answer_step_times(line, models).status().message());
  };
  const nlohmann::json config = to_json(config_with({1, 1, 1, 1, 1, 1, 1}));
  EXPECT_THAT(problem({{"job", 5}, {"config", config}}), HasSubstr("is not a string: 5"));
  EXPECT_THAT(problem(nlohmann::json::array()), HasSubstr("is not a JSON object"));
  const auto recorded = answer_step_times({{"job", "a"}, {"config", config}}, models);
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  const nlohmann::json machine = {{"device",
                                   {{"bf16_tflops", 989},
                                    {"fp8_tflops", 0},
                                    {"fp32_tflops", 494},
                                    {"memory_gb_s", 3350},
                                    {"multiprocessors", 132},
                                    {"node_gb_s", 450},
                                    {"node_latency_us", 2},
                                    {"network_gb_s", 50},
                                    {"network_latency_us", 6},
                                    {"host_gb_s", 55},
                                    {"devices_per_node", 8}}}};
  EXPECT_THAT(problem({{"machine", machine}, {"jobs", "a"}}), HasSubstr("jobs is not a list"));
  EXPECT_THAT(problem({{"machine", machine}, {"jobs", {"a", 7}}}), HasSubstr("is not a string: 7"));
  EXPECT_THAT(problem({{"machine", machine}, {"jobs", {"b"}}}), HasSubstr("no job b"));
  const auto times = answer_step_times({{"machine", machine}, {"jobs", {"a"}}}, models);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_GT((*times)[0]["seconds"].get<double>(), 0);
}

TEST(StepTime, MicroBatchesOfTheMiddleAreAlike) {
  TrainConfig config = config_with({2, 1, 1, 1, 1, 1, 1});
  const auto seconds = [&](int32_t micro_batches) {
    config.gradient_accumulation_steps = micro_batches;
    return StepModel::record(config)->forecast(kMachine).seconds;
  };
  const double three = seconds(3), four = seconds(4), ten = seconds(10);
  EXPECT_GT(four, three);
  EXPECT_NEAR(ten - four, 6 * (four - three), 1e-9);
}

// Each micro-batch of preference tuning is scored by two models before its gradient, also by those
// micro-batches that are not recorded, and in pipelines.
TEST(StepTime, PreferenceTuningScoresEveryMicroBatch) {
  const auto gemms = [](TrainConfig config, bool prefers) {
    config.dpo.enabled = prefers;
    config.remat_policy = RematPolicy::kNone;
    const auto model = StepModel::record(config);
    EXPECT_TRUE(model.ok()) << model.status();
    double seconds = 0;
    for (const auto& [name, part] : model->forecast(kMachine).parts)
      if (name == kIdealGemms) seconds = part;
    return seconds;
  };
  TrainConfig config = config_with({2, 1, 1, 1, 1, 1, 1});
  for (const int32_t micro_batches : {1, 2, 3, 9}) {
    config.gradient_accumulation_steps = micro_batches;
    // A backward pass takes as long as two forward passes.
    EXPECT_NEAR(gemms(config, true) / gemms(config, false), 5.0 / 3, 0.01) << micro_batches;
  }
  for (const int32_t repeats : {1, 2}) {
    TrainConfig stages = config_with({1, 4, 1, 1, 1, 1, 1});
    stages.model.num_layers = 8;
    stages.pipeline_repeats = repeats;
    stages.pipeline_microbatches = stages.per_device_batch_size = 16;
    EXPECT_NEAR(gemms(stages, true) / gemms(stages, false), 5.0 / 3, 0.01) << repeats;
    const auto seconds = [&](bool prefers) {
      stages.dpo.enabled = prefers;
      return StepModel::record(stages)->forecast(kMachine).seconds;
    };
    EXPECT_GT(seconds(true) / seconds(false), 1.4) << repeats;
    EXPECT_LT(seconds(true) / seconds(false), 1.9) << repeats;
  }
}

TEST(StepTime, MoreMicroBatchesHaveASmallerBubble) {
  TrainConfig config = config_with({1, 4, 1, 1, 1, 1, 1});
  config.model.num_layers = 8;
  const auto bubble = [&](int32_t micro_batches) {
    config.pipeline_microbatches = micro_batches;
    config.per_device_batch_size = 2 * micro_batches;
    const auto model = StepModel::record(config);
    EXPECT_TRUE(model.ok()) << model.status();
    const StepTimeForecast forecast = model->forecast(kMachine);
    double share = 0;
    for (const auto& [name, seconds] : forecast.parts)
      if (name == kBubble) share = seconds / forecast.seconds;
    return share;
  };
  EXPECT_GT(bubble(4), bubble(8));
  EXPECT_GT(bubble(8), bubble(32));
}

TEST(StepTime, SlowerLinksAndDevicesTakeLonger) {
  const auto model = StepModel::record(config_with({2, 1, 2, 1, 1, 1, 2}));
  ASSERT_TRUE(model.ok());
  const double seconds = model->forecast(kMachine).seconds;
  for (double DeviceModel::*field : {&DeviceModel::bf16_tflops, &DeviceModel::memory_gb_s}) {
    StepMachine slow = kMachine;
    slow.device.*field /= 10;
    EXPECT_GT(model->forecast(slow).seconds, seconds);
  }
  StepMachine far = kMachine;
  far.device.node_latency_us *= 10;
  EXPECT_GT(model->forecast(far).seconds, seconds);
}

TEST(StepTime, TimelineHasEveryWork) {
  const auto model = StepModel::record(config_with({1, 2, 1, 1, 1, 1, 1}));
  ASSERT_TRUE(model.ok());
  const auto trace = timeline(*model, kMachine, "step.json");
  ASSERT_TRUE(trace.ok());
  const nlohmann::json json = nlohmann::json::parse(*trace);
  size_t bars = 0;
  for (const auto& event : json["traceEvents"]) bars += event["ph"] == "X";
  EXPECT_GT(bars, model->first_stage().of(StepStream::kCompute).size());
  const auto picture = timeline(*model, kMachine, "step.svg");
  ASSERT_TRUE(picture.ok());
  EXPECT_THAT(*picture, HasSubstr("stage 1"));
  EXPECT_THAT(timeline(*model, kMachine, "step.png").status().message(), HasSubstr(".svg"));
}

TEST(StepMachine, RefusesImpossibleValues) {
  nlohmann::json json = {{"device",
                          {{"bf16_tflops", 989},
                           {"fp8_tflops", 0},
                           {"fp32_tflops", 1},
                           {"memory_gb_s", 1},
                           {"multiprocessors", 0},
                           {"node_gb_s", 1},
                           {"node_latency_us", 0},
                           {"network_gb_s", 1},
                           {"network_latency_us", 0},
                           {"host_gb_s", 1},
                           {"devices_per_node", 8}}},
                         {"constants", {{"gemm_fraction", 0.5}}}};
  ASSERT_TRUE(step_machine_from_json(json).ok());
  EXPECT_EQ(step_machine_from_json(json)->constants.gemm_fraction, 0.5);
  json["constants"]["gemm_fraction"] = 1.5;
  EXPECT_THAT(step_machine_from_json(json).status().message(),
              HasSubstr("constants.gemm_fraction=1.5: expected a number from 0.01 to 1"));
  json["constants"] = {{"gemm_fractoin", 0.5}};
  EXPECT_THAT(step_machine_from_json(json).status().message(), HasSubstr("unknown constant"));
  json["constants"] = {{"kernel_share_norms", 0.5}};
  EXPECT_THAT(step_machine_from_json(json).status().message(),
              HasSubstr("constants.kernel_share_norms: there is no operation norms"));
  json["constants"] = {{"kernel_share_norm", 0}};
  EXPECT_THAT(step_machine_from_json(json).status().message(),
              HasSubstr("constants.kernel_share_norm=0: expected a number from 0.0001 to 1000"));
  json["constants"] = {{"kernel_share_norm", 4}};
  EXPECT_EQ(step_machine_from_json(json)->constants.kernel_shares.at("norm"), 4);
  json["constants"] = {};
  json["device"].erase("memory_gb_s");
  EXPECT_THAT(step_machine_from_json(json).status().message(), HasSubstr("device.memory_gb_s"));
}

}  // namespace
}  // namespace muster::trainer
