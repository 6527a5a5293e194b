// The words of scenarios about the queue: dependencies, conditions for nodes, and the policy.
#include <string>
#include <string_view>
#include <vector>

#include <absl/strings/str_split.h>

#include "tests/scenarios/scenario.h"
#include "tests/scenarios/words.h"

namespace muster::coordinator {

// Reads "after-ok 1,2 select zone=a tolerate a=b", and removes these words.
void take_queue_words(std::vector<std::string>& words, JobSpec& spec) {
  const auto take = [&](std::string_view key, const auto& use) {
    for (auto word = words.begin(); word != words.end();) {
      if (*word != key || word + 1 == words.end()) {
        ++word;
        continue;
      }
      use(*(word + 1));
      word = words.erase(word, word + 2);
    }
  };
  for (size_t kind = 0; kind < kDependencyKindNames.size(); ++kind) {
    std::string key(kDependencyKindNames[kind]);
    for (char& c : key)
      if (c == '_') c = '-';
    take(key, [&](const std::string& jobs) {
      for (const std::string& job : std::vector<std::string>(absl::StrSplit(jobs, ',')))
        spec.dependencies.push_back({JobId(std::stoull(job)), static_cast<DependencyKind>(kind)});
    });
  }
  take("select", [&](const std::string& text) { spec.node_selector.push_back(text); });
  take("tolerate", [&](const std::string& text) { spec.tolerations.push_back(text); });
}

NodeLabels labels_of(const std::vector<std::string>& words) {
  NodeLabels labels;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const size_t equals = words[i + 1].find('=');
    if (words[i] == "label")
      labels.labels[words[i + 1].substr(0, equals)] = words[i + 1].substr(equals + 1);
    if (words[i] == "taint") labels.taints.push_back(words[i + 1]);
  }
  return labels;
}

// policy user|team NAME [KEY N …]
void Scenario::set_policy(const std::vector<std::string>& words) {
  Quota& quota = (words.at(1) == "team" ? policy_.teams : policy_.users)[words.at(2)];
  for (size_t kind = 0; kind < kQuotaKinds; ++kind) {
    if (const auto most = value_of(words, std::string(kQuotaNames[kind])))
      quota.max[kind] = std::stoll(*most);
  }
  if (const auto most = value_of(words, "priority_max")) quota.priority_max = std::stoi(*most);
  quota.shares = number_of(words, "shares", quota.shares);
  step(QueuePolicyChanged{policy_, unix_ns_});
}

}  // namespace muster::coordinator
