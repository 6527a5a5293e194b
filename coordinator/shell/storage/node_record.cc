#include "coordinator/shell/storage/node_record.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

namespace muster::coordinator {

using nlohmann::json;

std::string node_to_record(const NodeRecord& node) {
  const json record = {{"worker", node.worker.value()},
                       {"excluded", node.excluded},
                       {"suspicion", std::string(rule_of(node.suspicion).name)},
                       {"reason", node.reason},
                       {"since_unix_ns", node.since_unix_ns},
                       {"until_unix_ns", node.until_unix_ns},
                       {"drain_unix_ns", node.drain_unix_ns},
                       {"drain_reason", node.drain_reason},
                       {"for_drain", node.for_drain},
                       {"times", node.times},
                       {"check_due", node.check_due},
                       {"fault_unix_ns", node.fault_unix_ns},
                       {"fault", node.fault},
                       {"fault_job", node.fault_job.value()},
                       {"checked_unix_ns", node.checked_unix_ns},
                       {"check",
                        {{"passed", node.check.passed},
                         {"seconds", node.check.seconds},
                         {"sentence", node.check.sentence},
                         {"details", node.check.details}}}};
  // A worker's text may hold anything; invalid UTF-8 is replaced, not refused.
  return record.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<NodeRecord> node_from_record(std::string_view record) try {
  const json j = json::parse(record);
  NodeRecord node;
  node.worker = WorkerName(j.value("worker", std::string()));
  node.excluded = j.value("excluded", false);
  const std::string suspicion = j.value("suspicion", std::string());
  const auto rule = std::find_if(kSuspicionRules.begin(), kSuspicionRules.end(),
                                 [&](const SuspicionRule& r) { return r.name == suspicion; });
  if (node.worker.value().empty() || rule == kSuspicionRules.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("suspicion is \"", suspicion, "\" of \"", node.worker.value(), "\""));
  }
  node.suspicion = static_cast<Suspicion>(rule - kSuspicionRules.begin());
  node.reason = j.value("reason", node.reason);
  node.since_unix_ns = j.value("since_unix_ns", node.since_unix_ns);
  node.until_unix_ns = j.value("until_unix_ns", node.until_unix_ns);
  node.drain_unix_ns = j.value("drain_unix_ns", node.drain_unix_ns);
  // An earlier version has only the reason of the exclusion.
  node.drain_reason = j.value("drain_reason", node.reason);
  node.for_drain = j.value("for_drain", node.for_drain);
  node.times = j.value("times", node.times);
  node.check_due = j.value("check_due", node.check_due);
  node.fault_unix_ns = j.value("fault_unix_ns", node.fault_unix_ns);
  node.fault = j.value("fault", node.fault);
  node.fault_job = JobId(j.value("fault_job", uint64_t{0}));
  node.checked_unix_ns = j.value("checked_unix_ns", node.checked_unix_ns);
  const json check = j.value("check", json::object());
  node.check = {check.value("passed", false), check.value("seconds", 0.0),
                check.value("sentence", std::string()), check.value("details", std::string())};
  return node;
} catch (const json::exception& e) {
  return absl::InvalidArgumentError(e.what());
}

absl::Status load_nodes(SqliteDatabase& db, DurableState& state) {
  auto rows = db.prepare("SELECT name, record FROM nodes ORDER BY name");
  if (!rows.ok()) return rows.status();
  absl::StatusOr<bool> row;
  while ((row = rows->next_row()).ok() && *row) {
    auto node = node_from_record(rows->text(1));
    if (node.ok()) {
      state.nodes.push_back(*std::move(node));
    } else {
      spdlog::warn("state file {}: the record of node {} cannot be read, and is left out: {}",
                   db.path(), std::string(rows->text(0)), std::string(node.status().message()));
    }
  }
  return row.status();
}

absl::Status write_nodes(SqliteDatabase& db, const StorageBatch& batch) {
  auto put = db.prepare("INSERT OR REPLACE INTO nodes(name, record) VALUES(?1, ?2)");
  auto drop = db.prepare("DELETE FROM nodes WHERE name=?1");
  for (const auto* statement : {&put, &drop}) {
    if (!statement->ok()) return statement->status();
  }
  for (const auto& [name, node] : batch.nodes) {
    const std::string record = node_to_record(node);
    absl::Status status = put->bind(1, name.value());
    if (status.ok()) status = put->bind(2, record);
    if (status.ok()) status = put->run("storing a node");
    if (!status.ok()) return status;
  }
  for (const WorkerName& name : batch.forgotten_nodes) {
    absl::Status status = drop->bind(1, name.value());
    if (status.ok()) status = drop->run("forgetting a node");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace muster::coordinator
