#include "coordinator/hang_flags.h"

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "daemon/logging.h"

namespace muster::coordinator {
namespace {

constexpr int64_t kSecondsMax = 7 * 86'400;
constexpr int64_t kFloorMsMin = 100;  // below it heartbeats are what is measured
constexpr int64_t kFloorMsMax = 3'600'000;
constexpr double kStepsMax = 1'000;

using Budget = Duration HangBudgets::*;
constexpr std::array<std::pair<std::string_view, Budget>, 8> kBudgets = {
    {{"INIT", &HangBudgets::init},
     {"RENDEZVOUS", &HangBudgets::rendezvous},
     {"LOAD", &HangBudgets::load},
     {"COMPILE", &HangBudgets::compile},
     {"FIRST_STEPS", &HangBudgets::first_steps},
     {"EVAL", &HangBudgets::evaluation},
     {"CHECKPOINT", &HangBudgets::checkpoint},
     {"SHUTDOWN", &HangBudgets::shutdown}}};

[[noreturn]] void refuse(const std::string& text) {
  std::string names;
  for (const auto& [name, budget] : kBudgets)
    absl::StrAppend(&names, names.empty() ? "" : ", ", av(name));
  throw CLI::ValidationError(absl::StrCat("--phase-budget ", daemon::printable(text, 64),
                                          ": it must be PHASE=SECONDS with 1 to ", kSecondsMax,
                                          " seconds and one of the phases ", names));
}

void set_budget(const std::string& text, HangBudgets& budgets) {
  const size_t equals = text.find('=');
  int64_t seconds = 0;
  if (equals == std::string::npos || !absl::SimpleAtoi(text.substr(equals + 1), &seconds) ||
      seconds < 1 || seconds > kSecondsMax) {
    refuse(text);
  }
  const std::string phase = absl::AsciiStrToUpper(text.substr(0, equals));
  for (const auto& [name, budget] : kBudgets) {
    if (phase != name) continue;
    budgets.*budget = std::chrono::seconds(seconds);
    return;
  }
  refuse(text);
}

}  // namespace

void declare_hang_flags(CLI::App& app, HangBudgets& budgets) {
  const auto floor_ms = std::chrono::duration_cast<std::chrono::milliseconds>(budgets.floor);
  app.add_option_function<int64_t>(
         "--hang-floor-ms",
         [&budgets](const int64_t& ms) { budgets.floor = std::chrono::milliseconds(ms); },
         "No shorter silence of a training job is taken for a hang")
      ->check(CLI::Range(kFloorMsMin, kFloorMsMax))
      ->default_str(absl::StrCat(floor_ms.count()));
  app.add_option_function<double>(
         "--hang-steps",
         [&budgets](const double& steps) {
           // From one completed step to the next there is more between than a step.
           budgets.steps_completed *= steps / budgets.steps;
           budgets.steps = steps;
         },
         "Nor is one of less than so many times the job's longest recent step")
      ->check(CLI::Range(1.0, kStepsMax))
      ->default_str(absl::StrCat(budgets.steps));
  app.add_option_function<std::vector<std::string>>(
         "--phase-budget",
         [&budgets](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) set_budget(text, budgets);
         },
         "How long ranks may stand still in another phase than training, PHASE=SECONDS; may be "
         "repeated")
      ->type_name("PHASE=SECONDS")
      ->allow_extra_args(false);
}

}  // namespace muster::coordinator
