#include "trainer_core/forecast/device_bench.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/time/time.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/forecast/bench_models.h"
#include "trainer_core/forecast/op_timer.h"
#include "trainer_core/forecast/paired_calls.h"
#include "trainer_core/forecast/step_recorder.h"
#include "trainer_core/forecast/step_time.h"
#include "trainer_core/ops/gemm_peak.h"

namespace muster::trainer {
namespace {

constexpr double kGigabyte = 1e9;
// Larger than the caches of most CPUs, and small beside any memory.
constexpr int64_t kCopiedBytes = int64_t{96} << 20;
constexpr int kCopies = 7;
constexpr int kEmptyCalls = 200;
// A model is measured for this long at most.
constexpr double kModelSeconds = 6;
constexpr std::array<int64_t, 6> kReducedBytes = {4 << 10, 64 << 10, 512 << 10,
                                                  2 << 20, 8 << 20,  32 << 20};
constexpr int kReductions = 9;
constexpr std::chrono::minutes kRoundLimit(5);

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

class DeviceMeasurement {
 public:
  DeviceMeasurement(std::shared_ptr<Backend> backend, ProcessGroups& groups,
                    const DeviceBenchOptions& options)
      : backend_(std::move(backend)), groups_(groups), options_(options) {}

  absl::StatusOr<MeasuredDevice> run() {
    for (const BenchModel& model : bench_models()) runs_left_ += model.is_fitted ? 2 : 1;
    if (world().size() > 1) ++runs_left_;  // the shared step
    for (auto part : {&DeviceMeasurement::measure_rates, &DeviceMeasurement::measure_models,
                      &DeviceMeasurement::measure_reductions}) {
      if (auto status = (this->*part)(); !status.ok()) return status;
    }
    found_.machine = fit_device(found_.samples);
    if (auto status = forecast_steps(); !status.ok()) return status;
    if (auto status = measure_shared_step(); !status.ok()) return status;
    return std::move(found_);
  }

 private:
  ProcessGroup& world() { return groups_.world(); }
  bool is_host() const { return backend_->memory().is_host(); }

  // Replaces the values by their means over all ranks.
  absl::Status average(std::vector<double>& values) {
    std::vector<float> sums(values.begin(), values.end());
    if (auto status = world().all_reduce(std::span(sums), "mean"); !status.ok()) return status;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(sums[i]) / world().size();
    return absl::OkStatus();
  }

  // Peaks of GEMMs, bandwidths of copies, and the overhead of a call.
  absl::Status measure_rates() {
    Ops& ops = backend_->ops();
    const auto room = backend_->memory().allocate(2 * kCopiedBytes);
    const int64_t elements = kCopiedBytes / static_cast<int64_t>(sizeof(float));
    const Tensor from = Tensor::f32(static_cast<float*>(room.get()), {elements});
    const Tensor to = Tensor::f32(static_cast<float*>(room.get()) + elements, {elements});
    if (auto status = world().barrier("rates"); !status.ok()) return status;
    std::vector<double> rates;
    for (const DType dtype : {DType::kBf16, DType::kF32})
      rates.push_back(is_host() ? measure_gemm_peak_tflops(ops, dtype)
                                : measure_gemm_peak_tflops(ops, dtype, from));
    ops.fill(from, 1);
    ops.fill(to, 0);
    const auto seconds_of = [&](int times, const std::function<void()>& call) {
      std::vector<double> all;
      for (int i = 0; i < times; ++i) {
        ops.synchronize();
        const Instant begin = monotonic_now();
        call();
        ops.synchronize();
        all.push_back(to_seconds(monotonic_now() - begin));
      }
      return median_of(std::move(all));
    };
    const auto bytes = static_cast<double>(kCopiedBytes);
    rates.push_back(2 * bytes / seconds_of(kCopies, [&] { ops.copy(from, to); }));
    const std::vector<float> host(static_cast<size_t>(elements), 1);
    rates.push_back(bytes / seconds_of(kCopies, [&] { ops.upload(host.data(), to); }));
    const Tensor one = Tensor::f32(from.f32(), {1});
    rates.push_back(seconds_of(kEmptyCalls, [&] { ops.scale(1, one); }));
    rates.push_back(seconds_of(3,
                               [&] {
                                 for (int i = 0; i < kEmptyCalls; ++i) ops.scale(1, one);
                               }) /
                    kEmptyCalls);
    if (auto status = average(rates); !status.ok()) return status;
    found_.samples = {.bf16_tflops = rates[0],
                      .fp32_tflops = rates[1],
                      .memory_gb_s = rates[2] / kGigabyte,
                      .host_gb_s = rates[3] / kGigabyte,
                      .multiprocessors = static_cast<double>(backend_->multiprocessors()),
                      .kernel_seconds = rates[5],
                      .ranks = world().size()};
    call_seconds_ = rates[4];
    const double peak = options_.dtype == ComputeType::kBfloat16 ? rates[0] : rates[1];
    if (!(peak > 0)) return absl::InternalError("no GEMM could be measured");
    scale_ = options_.scale > 0 ? options_.scale : scale_for_peak(peak);
    return absl::OkStatus();
  }

  // Calls `step` once, and then up to options.steps times within the time of this run. All ranks do
  // the same number of steps, because they do so at the same time.
  absl::Status repeat(const std::function<absl::Status()>& step) {
    const Instant begin = monotonic_now();
    if (auto status = step(); !status.ok()) return status;
    const double first = to_seconds(monotonic_now() - begin);
    const double remaining = options_.seconds - to_seconds(begin - began_);
    std::vector<double> times = {
        static_cast<double>(steps_within(remaining, runs_left_--, first, options_.steps))};
    if (auto status = average(times); !status.ok()) return status;
    const auto count = static_cast<int>(times[0]);
    for (int i = 0; i < count; ++i)
      if (auto status = step(); !status.ok()) return status;
    return absl::OkStatus();
  }

  absl::StatusOr<double> measured_step(const TrainConfig& config, ProcessGroups& groups) {
    BenchRun run(config, backend_, groups);
    std::vector<double> seconds;
    const absl::Status status = repeat([&] {
      const auto one = run.step();
      if (one.ok()) seconds.push_back(*one);
      return one.status();
    });
    if (!status.ok()) return status;
    seconds.erase(seconds.begin());  // the first step creates the GEMMs of its shapes
    std::vector<double> middle = {median_of(std::move(seconds))};
    if (auto averaged = average(middle); !averaged.ok()) return averaged;
    return middle[0];
  }

  absl::Status measure_operations(const TrainConfig& config, ProcessGroups& own) {
    const auto trace = record_step(config, 0);
    if (!trace.ok()) return trace.status();
    const auto timed = std::make_shared<TimedBackend>(backend_);
    BenchRun run(config, timed, own);
    timed->timer().take();
    std::vector<std::vector<TimedCall>> steps;
    const absl::Status status = repeat([&] {
      const auto one = run.step();
      steps.push_back(timed->timer().take());
      return one.status();
    });
    if (!status.ok()) return status;
    std::vector<TimedCall>& calls = steps.back();
    std::vector<double> seconds;
    for (size_t i = 0; i < calls.size(); ++i) {
      std::vector<double> of_call;
      for (size_t step = 1; step < steps.size(); ++step)
        if (i < steps[step].size()) of_call.push_back(steps[step][i].seconds);
      seconds.push_back(median_of(std::move(of_call)));
    }
    if (auto averaged = average(seconds); !averaged.ok()) return averaged;
    for (size_t i = 0; i < calls.size(); ++i) calls[i].seconds = seconds[i];
    auto works = pair_calls(*trace, calls, call_seconds_, found_.samples.memory_gb_s);
    if (!works.ok()) return works.status();
    std::ranges::move(*works, std::back_inserter(found_.samples.works));
    return absl::OkStatus();
  }

  absl::Status measure_models() {
    ProcessGroups own(LocalWorld(1, kRoundLimit).join(0), mesh_of({}), nullptr, backend_->memory());
    for (const BenchModel& model : bench_models()) {
      const TrainConfig config = bench_config(model, scale_, options_.dtype);
      if (auto status = world().barrier("model"); !status.ok()) return status;
      if (model.is_fitted)
        if (auto status = measure_operations(config, own); !status.ok()) return status;
      const auto seconds = measured_step(config, own);
      if (!seconds.ok()) return seconds.status();
      found_.steps.push_back(
          {.name = absl::StrCat("emb_dim=", config.model.emb_dim,
                                " max_target_length=", config.max_target_length, ", one rank"),
           .seconds = *seconds,
           .is_fitted = model.is_fitted});
      configs_.push_back(config);
    }
    return absl::OkStatus();
  }

  absl::Status measure_reductions() {
    if (world().size() < 2) return absl::OkStatus();
    const auto room = backend_->memory().allocate(static_cast<size_t>(kReducedBytes.back()));
    for (const int64_t bytes : kReducedBytes) {
      const std::span<float> data(static_cast<float*>(room.get()),
                                  static_cast<size_t>(bytes) / sizeof(float));
      std::vector<double> seconds;
      for (int i = 0; i <= kReductions; ++i) {
        if (auto status = world().barrier("reduction"); !status.ok()) return status;
        const Instant begin = monotonic_now();
        if (auto status = world().all_reduce(data, "reduction"); !status.ok()) return status;
        if (auto status = world().finish(); !status.ok()) return status;
        if (i > 0) seconds.push_back(to_seconds(monotonic_now() - begin));
      }
      std::vector<double> middle = {median_of(std::move(seconds))};
      if (auto status = average(middle); !status.ok()) return status;
      found_.samples.reductions.push_back({static_cast<double>(bytes), middle[0]});
    }
    return absl::OkStatus();
  }

  // Forecasts the steps of single ranks. The time that the forecast lacks in each of those that
  // were fitted is the host's.
  absl::Status forecast_steps() {
    std::vector<double> missing;
    for (size_t i = 0; i < configs_.size(); ++i) {
      MeasuredStep& step = found_.steps[i];
      const auto seconds = forecast(configs_[i]);
      if (!seconds.ok()) return seconds.status();
      step.forecast_seconds = *seconds;
      if (step.is_fitted) missing.push_back(step.seconds - step.forecast_seconds);
    }
    const double host = std::max(0.0, std::ranges::min(missing));
    found_.machine.constants.step_ms = host * 1e3;
    for (MeasuredStep& step : found_.steps) step.forecast_seconds += host;
    return absl::OkStatus();
  }

  absl::StatusOr<double> forecast(const TrainConfig& config) {
    const auto model = StepModel::record(config);
    if (!model.ok()) return model.status();
    return model->forecast(found_.machine).seconds;
  }

  // The slowdown of the computation by collectives at the same time is what the forecast lacks.
  absl::Status measure_shared_step() {
    const int32_t ranks = world().size();
    if (ranks < 2) return absl::OkStatus();
    const TrainConfig config = shared_step_config(ranks, options_.dtype, scale_);
    const auto seconds = measured_step(config, groups_);
    if (!seconds.ok()) return seconds.status();
    StepConstants& constants = found_.machine.constants;
    const auto model = StepModel::record(config);
    if (!model.ok()) return model.status();
    constants.overlap_slowdown = 0;
    const double without = model->forecast(found_.machine).seconds;
    constants.overlap_slowdown = 1;
    const double hidden = model->forecast(found_.machine).seconds - without;
    constants.overlap_slowdown =
        hidden > 0 ? std::clamp((*seconds - without) / hidden, 0.0, 1.0) : 0;
    found_.steps.push_back(
        {.name = absl::StrCat("emb_dim=", config.model.emb_dim,
                              " max_target_length=", config.max_target_length, ", fsdp=", ranks),
         .seconds = *seconds,
         .forecast_seconds = model->forecast(found_.machine).seconds,
         .is_fitted = true,
         .ranks = ranks});
    return absl::OkStatus();
  }

  const std::shared_ptr<Backend> backend_;
  ProcessGroups& groups_;
  const DeviceBenchOptions options_;
  const Instant began_ = monotonic_now();
  int runs_left_ = 0;  // runs of models
  int32_t scale_ = 1;
  double call_seconds_ = 0;  // the time of a call that computes nothing, with the wait
  std::vector<TrainConfig> configs_;
  MeasuredDevice found_;
};

}  // namespace

int steps_within(double remaining, int runs, double first, int most) {
  const double own = std::min(kModelSeconds, remaining / std::max(runs, 1) - first);
  const double steps = own / std::max(first, 1e-6);
  return static_cast<int>(std::clamp(steps, 1.0, static_cast<double>(std::max(most, 1))));
}

absl::StatusOr<MeasuredDevice> measure_device(const std::shared_ptr<Backend>& backend,
                                              ProcessGroups& groups,
                                              const DeviceBenchOptions& options) {
  return DeviceMeasurement(backend, groups, options).run();
}

nlohmann::json to_json(const MeasuredDevice& measured) {
  const DeviceModel& device = measured.machine.device;
  nlohmann::json numbers = {{"bf16_tflops", device.bf16_tflops},
                            {"fp32_tflops", device.fp32_tflops},
                            {"memory_gb_s", device.memory_gb_s},
                            {"host_gb_s", device.host_gb_s}};
  if (device.multiprocessors > 0) numbers["multiprocessors"] = device.multiprocessors;
  if (device.node_gb_s > 0) {
    numbers["node_gb_s"] = device.node_gb_s;
    numbers["node_latency_us"] = device.node_latency_us;
  }
  auto constants = nlohmann::json::object();
  for (const StepConstant& constant : step_constants())
    constants[constant.name] = measured.machine.constants.*constant.field;
  for (const auto& [name, share] : measured.machine.constants.kernel_shares)
    constants[absl::StrCat("kernel_share_", name)] = share;
  auto steps = nlohmann::json::array();
  for (const MeasuredStep& step : measured.steps)
    steps.push_back({{"name", step.name},
                     {"seconds", step.seconds},
                     {"forecast_seconds", step.forecast_seconds},
                     {"fitted", step.is_fitted},
                     {"ranks", step.ranks}});
  return {{"device", std::move(numbers)},
          {"constants", std::move(constants)},
          {"steps", std::move(steps)}};
}

}  // namespace muster::trainer
