// Exclusions and checks of nodes in scenarios.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "tests/scenarios/scenario.h"
#include "tests/scenarios/words.h"

namespace muster::coordinator {

// Records a requested check. Healthy nodes answer checks immediately, unless the scenario contains
// the answers.
void Scenario::note_check(const WorkerName& worker, uint64_t check) {
  checks_[worker] = check;
  if (checks_by_hand_) decisions_.push_back(absl::StrCat("check ", worker.value()));
}

void Scenario::answer_checks() {
  while (!checks_by_hand_ && !checks_.empty()) {
    const auto [name, check] = *checks_.begin();
    checks_.erase(checks_.begin());
    step(NodeChecked{
        name, core_->workers().at(name).incarnation, check, {true, 0.1, "all good", ""}, unix_ns_});
  }
}

// Runs a line with a node event. Returns false if the line has another kind.
bool Scenario::run_node_event(const Words& words) {
  const std::string& verb = words[0];
  if (verb == "checks") {
    checks_by_hand_ = true;
  } else if (verb == "checked") {
    const WorkerName name(words.at(1));
    const bool passed = words.at(2) == "passed";
    step(NodeChecked{name,
                     workers_[name].incarnation,
                     checks_[name],
                     {passed, 0.1, words.size() > 3 ? words[3] : "all good", ""},
                     unix_ns_});
  } else if (verb == "exclude") {
    NodeExcludeRequested event{RequestToken(next_token_++), WorkerName(words.at(1)), words.at(2),
                               std::nullopt, unix_ns_};
    if (const auto seconds = value_of(words, "for"))
      event.time = std::chrono::seconds(std::stoll(*seconds));
    event.evacuate = words.back() == "evacuate";
    if (const auto seconds = value_of(words, "drain"))
      event.drain_unix_ns = unix_ns_ + std::stoll(*seconds) * 1'000'000'000;
    event.late = words.back() != "at-once";
    step(event);
  } else if (verb == "admit") {
    step(NodeAdmitRequested{RequestToken(next_token_++), WorkerName(words.at(1)), unix_ns_});
  } else {
    return false;
  }
  return true;
}

std::string Scenario::expect_node(const Words& words) const {
  const auto found = core_->nodes().find(WorkerName(words.at(2)));
  std::string got = "good";
  if (found != core_->nodes().end() && found->second.excluded) {
    got = absl::StrCat("excluded ", av(rule_of(found->second.suspicion).name), ": ",
                       found->second.reason);
  } else if (found != core_->nodes().end() && found->second.check_due) {
    got = "unchecked";
  }
  const bool good =
      absl::StartsWith(got, words.at(3)) && (words.size() < 5 || absl::StrContains(got, words[4]));
  return good ? "" : absl::StrCat("it is ", got);
}

}  // namespace muster::coordinator
