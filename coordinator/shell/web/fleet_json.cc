#include "coordinator/shell/web/fleet_json.h"

#include <cmath>
#include <string>
#include <utility>

#include "coordinator/core/accounting/ledger.h"
#include "coordinator/shell/messages/account_messages.h"
#include "daemon/json/goodput_json.h"
#include "daemon/json/job_json.h"

namespace muster::coordinator {
namespace {

using nlohmann::json;

// Six significant digits are more than a page shows, and a value that moves by less is not sent
// again.
double brief(double value) {
  constexpr int kDigits = 6;
  if (!std::isfinite(value) || value == 0) return value;
  const double scale = std::pow(10, kDigits - 1 - std::floor(std::log10(std::fabs(value))));
  return std::isfinite(scale) ? std::round(value * scale) / scale : value;
}

json number_or_null(double value, bool is_known) {
  return is_known ? daemon::json_number(brief(value)) : json(nullptr);
}

json resources_to_json(const ResourceNumbers& numbers) {
  return {{"total", numbers.total},
          {"used", numbers.used},
          {"free", numbers.free},
          {"excluded", numbers.excluded}};
}

// The members of a row, in the API's order. `visit` receives the name and a function from a row to
// the value.
template <class Visit>
void for_each_member(Visit&& visit) {
  visit("name", [](const JobRow& row) { return row.name; });
  visit("user", [](const JobRow& row) { return row.user; });
  visit("state", [](const JobRow& row) { return job_state_name(row.state); });
  visit("reason", [](const JobRow& row) { return row.reason; });
  visit("attempt", [](const JobRow& row) { return row.figures.attempt; });
  visit("nodes", [](const JobRow& row) { return row.nodes; });
  visit("ranks", [](const JobRow& row) { return row.ranks; });
  visit("gpus", [](const JobRow& row) { return row.gpus; });
  visit("priority", [](const JobRow& row) { return row.priority; });
  visit("step", [](const JobRow& row) { return row.figures.step; });
  visit("steps", [](const JobRow& row) { return row.steps; });
  visit("incident", [](const JobRow& row) { return row.incident; });
  visit("submitted_unix_ns", [](const JobRow& row) { return row.submitted_unix_ns; });
  visit("started_unix_ns", [](const JobRow& row) { return row.started_unix_ns; });
  visit("finished_unix_ns", [](const JobRow& row) { return row.finished_unix_ns; });
}
template <class Visit>
void for_each_figure(Visit&& visit) {
  const auto figure = [&](const char* name, double MetricPoint::*member) {
    visit(name, [member](const JobRow& row) {
      return row.has_figures ? brief(row.figures.*member) : std::nan("");
    });
  };
  figure("loss", &MetricPoint::loss);
  figure("step_seconds", &MetricPoint::step_seconds);
  figure("tokens_per_second", &MetricPoint::tokens_per_second);
  visit("mfu", [](const JobRow& row) {
    return row.has_figures && row.figures.mfu > 0 ? brief(row.figures.mfu) : std::nan("");
  });
  visit("ettr", [](const JobRow& row) { return row.ettr < 0 ? std::nan("") : brief(row.ettr); });
}

bool is_same(double a, double b) { return a == b || (!std::isfinite(a) && !std::isfinite(b)); }

}  // namespace

json row_to_json(const JobRow* before, const JobRow& after) {
  json out;
  for_each_member([&](const char* name, const auto& value_of) {
    if (before == nullptr || value_of(*before) != value_of(after)) out[name] = value_of(after);
  });
  for_each_figure([&](const char* name, const auto& value_of) {
    const double value = value_of(after);
    if (before == nullptr || !is_same(value_of(*before), value))
      out[name] = daemon::json_number(value);
  });
  if (!out.is_null()) out["id"] = after.id;
  return out;
}

json fleet_to_json(const FleetSample& sample, const json& before) {
  json jobs = json::object();
  for (size_t i = 0; i < sample.jobs.size(); ++i)
    jobs[std::string(kJobStateNames[i])] = sample.jobs[i];
  json out = {{"unix_ns", sample.unix_ns},
              {"jobs", std::move(jobs)},
              {"tokens_per_second", brief(sample.tokens_per_second)},
              {"open_incidents", sample.open_incidents}};
  if (!sample.has_totals) {
    for (const char* name : {"nodes", "slots", "gpus", "goodput"}) out[name] = before.at(name);
    return out;
  }
  out["nodes"] = {{"total", sample.nodes.total},
                  {"connected", sample.nodes.connected},
                  {"excluded", sample.nodes.excluded},
                  {"leaving", sample.nodes.leaving},
                  {"checking", sample.nodes.checking}};
  out["slots"] = resources_to_json(sample.slots);
  out["gpus"] = resources_to_json(sample.gpus);
  Account account;
  account.settled = sample.goodput;
  account.queued = sample.queued;
  v1::Goodput goodput;
  goodput_to_proto(account, goodput);
  out["goodput"] = daemon::goodput_to_json(goodput);
  return out;
}

json changed_members(const json& before, const json& after) {
  json out;
  for (const auto& [name, value] : after.items()) {
    const auto found = before.find(name);
    if (found == before.end() || *found != value) out[name] = value;
  }
  return out;
}

json point_to_json(const MetricPoint& point) {
  return {{"unix_ns", point.unix_ns},
          {"attempt", point.attempt},
          {"step", point.step},
          {"loss", number_or_null(point.loss, true)},
          {"grad_norm", number_or_null(point.grad_norm, true)},
          {"step_seconds", number_or_null(point.step_seconds, point.step_seconds > 0)},
          {"tokens_per_second", number_or_null(point.tokens_per_second, true)},
          {"mfu", number_or_null(point.mfu, point.mfu > 0)},
          {"learning_rate", number_or_null(point.learning_rate, point.learning_rate > 0)}};
}

json metrics_to_json(uint64_t job, const std::vector<MetricPoint>& points) {
  json columns = json::object();
  const json names = point_to_json({});
  for (const auto& [name, value] : names.items()) columns[name] = json::array();
  for (const MetricPoint& point : points) {
    const json values = point_to_json(point);
    for (const auto& [name, value] : values.items()) columns[name].push_back(value);
  }
  return {{"job", job}, {"columns", std::move(columns)}};
}

}  // namespace muster::coordinator
