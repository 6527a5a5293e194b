#include "coordinator/shell/storage/check_table.h"

#include <utility>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

namespace muster::coordinator {

using nlohmann::json;

std::string checks_to_record(const DeepChecks& checks) {
  json list = json::array();
  for (const DeepCheckRecord& check : checks) {
    json measurements = json::array();
    for (const Measurement& one : check.measurements)
      measurements.push_back({{"name", one.name}, {"value", one.value}, {"unit", one.unit}});
    list.push_back({{"unix_ns", check.unix_ns},
                    {"passed", check.passed},
                    {"seconds", check.seconds},
                    {"sentence", check.sentence},
                    {"kind", check.kind},
                    {"measurements", std::move(measurements)}});
  }
  // A worker's text may hold anything; invalid UTF-8 is replaced, not refused.
  return list.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<DeepChecks> checks_from_record(std::string_view record) try {
  DeepChecks checks;
  for (const json& stored : json::parse(record)) {
    DeepCheckRecord check;
    check.unix_ns = stored.value("unix_ns", check.unix_ns);
    check.passed = stored.value("passed", check.passed);
    check.seconds = stored.value("seconds", check.seconds);
    check.sentence = stored.value("sentence", check.sentence);
    check.kind = stored.value("kind", check.kind);
    for (const json& one : stored.value("measurements", json::array())) {
      check.measurements.push_back({one.value("name", std::string()), one.value("value", 0.0),
                                    one.value("unit", std::string())});
    }
    checks.push_back(std::move(check));
  }
  return checks;
} catch (const json::exception& e) {
  return absl::InvalidArgumentError(e.what());
}

absl::Status load_checks(SqliteDatabase& db, DurableState& state) {
  auto rows = db.prepare("SELECT name, record FROM deep_checks ORDER BY name");
  if (!rows.ok()) return rows.status();
  absl::StatusOr<bool> row;
  while ((row = rows->next_row()).ok() && *row) {
    const std::string name(rows->text(0));
    auto checks = checks_from_record(rows->text(1));
    if (checks.ok()) {
      state.deep_checks.emplace(WorkerName(name), *std::move(checks));
    } else {
      spdlog::warn("state file {}: the checks of node {} cannot be read, and are left out: {}",
                   db.path(), name, std::string(checks.status().message()));
    }
  }
  return row.status();
}

absl::Status write_checks(SqliteDatabase& db, const StorageBatch& batch) {
  if (batch.deep_checks.empty()) return absl::OkStatus();
  auto put = db.prepare("INSERT OR REPLACE INTO deep_checks(name, record) VALUES(?1, ?2)");
  auto drop = db.prepare("DELETE FROM deep_checks WHERE name=?1");
  for (const auto* statement : {&put, &drop}) {
    if (!statement->ok()) return statement->status();
  }
  for (const auto& [name, checks] : batch.deep_checks) {
    const std::string record = checks_to_record(checks);
    auto& statement = checks.empty() ? drop : put;
    absl::Status status = statement->bind(1, name.value());
    if (status.ok() && !checks.empty()) status = statement->bind(2, record);
    if (status.ok()) status = statement->run("storing the checks of a node");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace muster::coordinator
