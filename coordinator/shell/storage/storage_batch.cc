#include "coordinator/shell/storage/storage_batch.h"

#include <algorithm>
#include <variant>

namespace muster::coordinator {

bool ends_with_secrets(const StorageBatch& batch) {
  return std::any_of(batch.jobs.begin(), batch.jobs.end(), [](const auto& entry) {
    return is_terminal(entry.second.state) && !entry.second.spec.environment.empty();
  });
}

StorageBatch batch_of(const Core& core, const ActionList& actions) {
  StorageBatch batch;
  for (const Action& action : actions) {
    if (const auto* job = std::get_if<PersistJob>(&action)) {
      const auto known = core.jobs().find(job->job);
      if (known != core.jobs().end() && !batch.jobs.contains(job->job))
        batch.jobs.emplace(job->job, durable(known->second));
    } else if (const auto* exit = std::get_if<PersistExit>(&action)) {
      batch.exits.push_back({exit->job, exit->attempt, exit->position, exit->exit});
    } else if (const auto* request = std::get_if<PersistRequestId>(&action)) {
      batch.request_ids.insert_or_assign(request->request_id, request->job);
    } else if (const auto* last = std::get_if<PersistLastJobId>(&action)) {
      batch.last_job_id = std::max(batch.last_job_id, last->job);
    } else if (const auto* forget = std::get_if<ForgetJob>(&action)) {
      batch.jobs.erase(forget->job);
      batch.forgotten.push_back(forget->job);
    } else if (const auto* incident = std::get_if<PersistIncident>(&action)) {
      batch.incidents.insert_or_assign(incident->incident.id, incident->incident);
    } else if (const auto* old = std::get_if<ForgetIncident>(&action)) {
      batch.incidents.erase(old->incident);
      batch.forgotten_incidents.push_back(old->incident);
    } else if (const auto* node = std::get_if<PersistNode>(&action)) {
      batch.nodes.insert_or_assign(node->node.worker, node->node);
      std::erase(batch.forgotten_nodes, node->node.worker);
    } else if (const auto* checks = std::get_if<PersistDeepChecks>(&action)) {
      batch.deep_checks.insert_or_assign(checks->worker, checks->checks);
    } else if (const auto* attempt = std::get_if<PersistAttempt>(&action)) {
      batch.attempts.push_back(attempt->attempt);
    } else if (const auto* usage = std::get_if<PersistUsage>(&action)) {
      batch.usages.insert_or_assign(usage->usage.party, usage->usage);
    } else if (const auto* policy = std::get_if<PersistQueuePolicy>(&action)) {
      batch.queue_policy = policy->text;
    } else if (const auto* gone = std::get_if<ForgetNode>(&action)) {
      batch.nodes.erase(gone->worker);
      batch.forgotten_nodes.push_back(gone->worker);
    }
  }
  // The record of a job contains all exits of its current attempt.
  std::erase_if(batch.exits, [&](const StoredExit& exit) {
    const auto job = core.jobs().find(exit.job);
    return job == core.jobs().end() || batch.jobs.contains(exit.job) ||
           job->second.attempt != exit.attempt;
  });
  return batch;
}

}  // namespace muster::coordinator
