#include "jobspec/keys/step_keys.h"

#include <string_view>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::jobspec {
namespace {

using trainer::NotFinitePolicy;

std::string_view name_of_policy(NotFinitePolicy policy) {
  return name_of(trainer::kNotFinitePolicyNames, policy);
}

constexpr std::string_view kAborts[] = {"abort_on_nan_loss", "abort_on_inf_loss"};

// Returns whether the user has requested an abort by one of these keys.
bool requests_abort(SettingsReader& reader) {
  for (const std::string_view key : kAborts) {
    bool aborts = false;
    reader.read(key, aborts);
    if (aborts && reader.is_set_by_user(key)) return true;
  }
  return false;
}

// Warns of keys that are set without another one that makes them effective.
void warn_of_idle_keys(const SettingsReader& reader, const trainer::TrainConfig& train,
                       std::vector<std::string>& warnings) {
  const auto warn = [&](std::string_view key, std::string_view because) {
    if (reader.is_set_by_user(key))
      warnings.push_back(absl::StrCat(av(key), " has no effect: ", av(because)));
  };
  if (!train.spikes.detects()) {
    for (const std::string_view key : {"skip_step_interval", "skip_step_scaling_factor"})
      warn(key, "neither skip_step_on_spikes nor rollback_after_spikes is set");
  }
  if (train.spikes.rollback_after == 0 && train.not_finite_policy != NotFinitePolicy::kRollback)
    warn("max_rollbacks", "neither rollback_after_spikes nor not_finite_policy=rollback is set");
}

// Without these aborts MaxText continues with parameters that are not finite; here the step is
// skipped.
void read_aborts(SettingsReader& reader, bool is_policy_set, NotFinitePolicy& policy,
                 std::vector<std::string>& warnings) {
  for (const std::string_view key : kAborts) {
    bool aborts = true;
    reader.read(key, aborts);
    if (aborts) continue;
    if (!is_policy_set) policy = NotFinitePolicy::kSkip;
    warnings.push_back(absl::StrCat(av(key), "=False: a step that is not finite is never applied; ",
                                    "instead not_finite_policy applies, which is ",
                                    av(name_of_policy(policy))));
    break;
  }
}

}  // namespace

void read_step_rules(SettingsReader& reader, trainer::TrainConfig& train,
                     std::vector<std::string>& warnings) {
  constexpr std::string_view kPolicy = "not_finite_policy";
  trainer::SpikeConfig& spikes = train.spikes;
  reader.read("skip_step_on_spikes", spikes.skip_step);
  reader.read("skip_step_interval", spikes.interval);
  reader.read("skip_step_scaling_factor", spikes.scaling_factor);
  reader.read("rollback_after_spikes", spikes.rollback_after);
  reader.read("max_rollbacks", train.max_rollbacks);
  reader.read_choice(kPolicy, trainer::kNotFinitePolicyNames, train.not_finite_policy);
  const bool is_set = reader.is_set_by_user(kPolicy) || requests_abort(reader);
  if (!is_set && spikes.rollback_after > 0) train.not_finite_policy = NotFinitePolicy::kRollback;
  read_aborts(reader, is_set, train.not_finite_policy, warnings);
  warn_of_idle_keys(reader, train, warnings);
}

void warn_of_same_batches(const trainer::TrainConfig& train, std::vector<std::string>& warnings) {
  if (train.dataset_type != trainer::DatasetType::kSynthetic) return;
  std::string key;
  if (train.spikes.rollback_after > 0) {
    key = absl::StrCat("rollback_after_spikes is ", train.spikes.rollback_after);
  } else if (train.not_finite_policy != NotFinitePolicy::kAbort) {
    key = absl::StrCat("not_finite_policy is ", av(name_of_policy(train.not_finite_policy)));
  } else {
    return;
  }
  warnings.push_back(absl::StrCat(
      key,
      ", but dataset_type is synthetic: its batch is the same in each step, so that another "
      "one does not help"));
}

}  // namespace muster::jobspec
