#include "coordinator/shell/storage/revision_record.h"

#include <algorithm>
#include <string>
#include <utility>

namespace muster::coordinator {
namespace {

using nlohmann::json;

json note_to_json(const RevisionNote& note) {
  return {{"revision", note.revision}, {"change", note.change}, {"request_id", note.request_id},
          {"unix_ns", note.unix_ns},   {"end", note.end},       {"undone", note.is_undone}};
}

RevisionNote note_from_json(const json& j) {
  return {j.value("revision", 0),
          j.value("change", std::string()),
          j.value("request_id", std::string()),
          j.value("unix_ns", int64_t{0}),
          j.value("end", std::string()),
          j.value("undone", false)};
}

// An unknown number, from a later version, counts as kAfterSave.
UpdateTime update_time_from(int number) {
  if (number == static_cast<int>(UpdateTime::kAtCheckpoint)) return UpdateTime::kAtCheckpoint;
  if (number == static_cast<int>(UpdateTime::kNow)) return UpdateTime::kNow;
  return UpdateTime::kAfterSave;
}

}  // namespace

json dependencies_to_json(const std::vector<JobDependency>& dependencies) {
  json list = json::array();
  for (const JobDependency& one : dependencies)
    list.push_back(
        {{"job", one.job.value()}, {"kind", std::string(dependency_kind_name(one.kind))}});
  return list;
}

// An unknown kind, from a later version, counts as the strictest one.
std::vector<JobDependency> dependencies_from_json(const json& list) {
  std::vector<JobDependency> dependencies;
  for (const json& one : list) {
    const auto kind = std::ranges::find(kDependencyKindNames, one.value("kind", std::string()));
    dependencies.push_back(
        {JobId(one.value("job", uint64_t{0})),
         kind == kDependencyKindNames.end()
             ? DependencyKind::kAfterOk
             : static_cast<DependencyKind>(kind - kDependencyKindNames.begin())});
  }
  return dependencies;
}

json spec_to_json(const JobSpec& spec) {
  json smaller = json::array();
  for (const SmallerJob& size : spec.smaller)
    smaller.push_back({{"nodes", size.nodes}, {"train_config_json", size.train_config_json}});
  json j = {{"environment", spec.environment},
            {"stack_traces",
             {{"collect", spec.stack_traces.collect},
              {"to_cloud", spec.stack_traces.to_cloud},
              {"interval_seconds", spec.stack_traces.interval_seconds}}},
            {"smaller", std::move(smaller)},
            {"dependencies", dependencies_to_json(spec.dependencies)}};
  for_each_job_field(
      [&](const JobField& field, auto member) { j[std::string(field.name)] = spec.*member; });
  return j;
}

JobSpec spec_from_json(const json& record) {
  JobSpec spec;
  for_each_job_field([&](const JobField& field, auto member) {
    spec.*member = record.value(std::string(field.name), spec.*member);
  });
  spec.environment = record.value("environment", spec.environment);
  const json traces = record.value("stack_traces", json::object());
  StackTraceSpec& wanted = spec.stack_traces;
  wanted.collect = traces.value("collect", wanted.collect);
  wanted.to_cloud = traces.value("to_cloud", wanted.to_cloud);
  wanted.interval_seconds = traces.value("interval_seconds", wanted.interval_seconds);
  for (const json& size : record.value("smaller", json::array()))
    spec.smaller.push_back(
        {size.value("nodes", 0), size.value("train_config_json", std::string())});
  spec.dependencies = dependencies_from_json(record.value("dependencies", json::array()));
  return spec;
}

void add_revisions(const Job& job, json& record) {
  json notes = json::array();
  for (const RevisionNote& note : job.revisions) notes.push_back(note_to_json(note));
  record["revision"] = job.revision;
  record["newest_revision"] = job.newest_revision;
  record["revisions"] = std::move(notes);
  record["keeps_nodes"] = job.keeps_nodes;
  record["is_backfilled"] = job.is_backfilled;
  if (job.update) {
    json update = {{"note", note_to_json(job.update->note)},
                   {"spec", spec_to_json(job.update->spec)},
                   {"rollback_steps", job.update->rollback_steps},
                   {"time", static_cast<int>(job.update->time)}};
    if (job.update->after_step) update["after_step"] = *job.update->after_step;
    record["update"] = std::move(update);
  }
  if (job.trial)
    record["trial"] = {{"former", spec_to_json(job.trial->former)},
                       {"former_revision", job.trial->former_revision},
                       {"rollback_steps", job.trial->rollback_steps},
                       {"first_step", job.trial->first_step},
                       {"newest_step", job.trial->newest_step}};
}

void read_revisions(const json& record, Job& job) {
  job.revision = record.value("revision", 1);
  job.newest_revision = record.value("newest_revision", 1);
  for (const json& note : record.value("revisions", json::array()))
    job.revisions.push_back(note_from_json(note));
  job.keeps_nodes = record.value("keeps_nodes", false);
  job.is_backfilled = record.value("is_backfilled", false);
  if (const auto update = record.find("update"); update != record.end()) {
    job.update = JobUpdate{note_from_json(update->value("note", json::object())),
                           spec_from_json(update->value("spec", json::object())),
                           update->value("rollback_steps", int64_t{0}),
                           update_time_from(update->value("time", 0))};
    if (update->contains("after_step"))
      job.update->after_step = update->value("after_step", int64_t{-1});
  }
  if (const auto trial = record.find("trial"); trial != record.end())
    job.trial =
        Trial{spec_from_json(trial->value("former", json::object())),
              trial->value("former_revision", 0), trial->value("rollback_steps", int64_t{0}),
              trial->value("first_step", int64_t{-1}), trial->value("newest_step", int64_t{-1})};
}

}  // namespace muster::coordinator
