#include "jobspec/precision_keys.h"

#include <cmath>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "jobspec/keys/model_keys.h"

namespace muster::jobspec {
namespace {

constexpr std::string_view kKey = "dtype";

// Jobs of other machines have unknown devices unless hardware=cpu is given; bfloat16 is then right
// for their GPUs.
bool runs_on_cpu(trainer::Hardware hardware, const LaunchOptions& options) {
  return hardware == trainer::Hardware::kCpu ||
         (hardware == trainer::Hardware::kAuto && options.own_workers && options.node_gpus == 0);
}

// Rounds a speed below 1 to two digits, so that it does not become 1.00.
double rounded_down(double speed) {
  constexpr double kLess = 1e-9;  // 0.63 is stored as less than 0.63
  return std::floor(speed * 100 + kLess) / 100;
}

// jax.lax.Precision also has names for what its values mean on a GPU.
void read_matmul_precision(SettingsReader& reader, trainer::MatmulPrecision& precision) {
  constexpr std::string_view kMatmulKey = "matmul_precision";
  std::string name;
  reader.read(kMatmulKey, name);
  if (name == "tensorfloat32") {
    precision = trainer::MatmulPrecision::kHigh;
  } else if (name == "float32") {
    precision = trainer::MatmulPrecision::kHighest;
  } else {
    reader.read_choice(kMatmulKey, trainer::kMatmulPrecisionNames, precision);
  }
}

}  // namespace

bool needs_cpu_speed(const Config& config, const LaunchOptions& options) {
  SettingsReader reader(config.settings);
  std::string hardware, dtype;
  reader.read("hardware", hardware);
  reader.read(kKey, dtype);
  const auto choice = trainer::value_named<trainer::Hardware>(trainer::kHardwareNames, hardware);
  return (options.own_workers || !options.planned_cpu.name.empty()) && dtype == "bfloat16" &&
         !reader.is_set_by_user(kKey) && choice.has_value() && runs_on_cpu(*choice, options);
}

void read_precision(SettingsReader& reader, const LaunchOptions& options,
                    trainer::TrainConfig& train, std::vector<std::string>& warnings) {
  reader.read_choice("weight_dtype", trainer::kComputeTypeNames, train.weight_dtype);
  // Adapters are float32, whatever the type of the weights that they adapt.
  if (!train.model.lora.enabled()) train.optimizer.mu_dtype = train.weight_dtype;
  read_matmul_precision(reader, train.matmul_precision);
  read_dtype(reader, train.dtype);
  if (train.dtype != trainer::ComputeType::kBfloat16 || reader.is_set_by_user(kKey) ||
      !runs_on_cpu(train.hardware, options))
    return;
  const std::optional<double>& speed = options.cpu_bfloat16_speed;
  const bool is_plan = !options.planned_cpu.name.empty();
  if (speed.has_value() && *speed >= 1) {
    if (is_plan)
      warnings.push_back(
          absl::StrFormat("dtype is bfloat16, as a run there would choose: on %s it reaches %.2f "
                          "of float32's speed",
                          options.planned_cpu.name, *speed));
    return;
  }
  train.dtype = trainer::ComputeType::kFloat32;
  warnings.push_back(
      speed.has_value()
          ? absl::StrFormat("dtype is float32%s: on %s bfloat16 reaches %.2f of its speed; "
                            "dtype=bfloat16 trains in bfloat16 nevertheless",
                            is_plan ? ", as a run there would choose" : "",
                            is_plan ? options.planned_cpu.name : "this CPU", rounded_down(*speed))
          : "dtype is float32: whether bfloat16 is as fast on the ranks' CPUs is not known here; "
            "dtype=bfloat16 trains in bfloat16 nevertheless");
}

}  // namespace muster::jobspec
