#include "cli/jobs/job_view.h"

#include <gmock/gmock.h>

#include <cmath>

#include <gtest/gtest.h>

#include "cli/jobs/node_view.h"
#include "cli/jobs/update_view.h"
#include "common/text/escape.h"
#include "daemon/job_spec_messages.h"
#include "daemon/json/job_json.h"
#include "tests/unit/every_job_field.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::Job running_job() {
  v1::Job job;
  job.set_id(7);
  job.set_state(v1::RUNNING);
  job.set_reason("every rank is up");
  job.set_attempt(1);
  job.mutable_spec()->set_name("first");
  job.mutable_spec()->set_user("ada");
  job.mutable_spec()->set_nodes(1);
  job.mutable_spec()->set_ranks_per_node(2);
  job.mutable_spec()->set_train_config_json(R"({"vocab_size": 320})");
  job.mutable_spec()->set_steps(100);
  job.set_tokens_per_second(2000);
  job.set_submitted_unix_ns(1'000'000'000);
  v1::RankStatus* rank = job.add_ranks();
  rank->set_step(42);
  rank->set_checkpoint_step(40);
  rank->set_loss(NAN);
  rank->set_tokens_per_second(1000);
  rank->set_phase("STEP");
  return job;
}

TEST(JobView, JsonHasNumbersNamesAndTheConfigAsAnObject) {
  const auto json = daemon::job_to_json(running_job());
  EXPECT_EQ(json["id"], 7);
  EXPECT_EQ(json["state"], "RUNNING");
  EXPECT_EQ(json["spec"]["steps"], 100);
  EXPECT_EQ(json["spec"]["train_config"]["vocab_size"], 320);
  EXPECT_EQ(json["tokens_per_second"], 2000);
  EXPECT_TRUE(json["ranks"][0]["loss"].is_null());
  EXPECT_EQ(json["ranks"][0]["checkpoint_step"], 40);
  EXPECT_TRUE(json["placement"].is_array());
}

TEST(JobView, JsonHasThePlainFieldsOfAJob) {
  const JobSpec spec = job_with_every_field();
  v1::Job job;
  daemon::job_spec_to_proto(spec, *job.mutable_spec());
  const auto json = daemon::job_to_json(job)["spec"];
  for_each_job_field([&](const JobField& field, auto member) {
    const std::string key(field.name);
    if (key == "train_config_json" || key == "settings_json" || key == "gpus_per_rank") {
      EXPECT_FALSE(json.contains(key)) << key;
    } else {
      EXPECT_EQ(json.value(key, nlohmann::json()), nlohmann::json(spec.*member)) << key;
    }
  });
  EXPECT_EQ(json["stack_traces"]["interval_seconds"], 7);
  job.mutable_spec()->clear_command();
  EXPECT_FALSE(daemon::job_to_json(job)["spec"].contains("command"));
  EXPECT_FALSE(daemon::job_to_json(job)["spec"].contains("working_directory"));
}

TEST(JobView, EnvironmentHasNamesButNoValues) {
  v1::Job job = running_job();
  (*job.mutable_spec()->mutable_environment())["API_TOKEN"] = "secret";
  const auto json = daemon::job_to_json(job);
  EXPECT_EQ(json["spec"]["environment"]["API_TOKEN"], "***");
  EXPECT_EQ(json.dump().find("secret"), std::string::npos);
}

TEST(JobView, AnInvalidConfigIsNullAndAMissingOneIsOmitted) {
  v1::Job job = running_job();
  job.mutable_spec()->set_train_config_json("{");
  EXPECT_TRUE(daemon::job_to_json(job)["spec"].at("train_config").is_null());
  job.mutable_spec()->clear_train_config_json();
  EXPECT_FALSE(daemon::job_to_json(job)["spec"].contains("train_config"));
}

TEST(JobView, ShowsTheNodesOfAJob) {
  v1::Job job = running_job();
  job.mutable_spec()->set_nodes(4);
  job.set_nodes(2);
  job.add_held("node7");
  job.add_held("node8");
  EXPECT_THAT(describe_job(job, 0), HasSubstr("4 ranks on 2 of 4 nodes"));
  EXPECT_THAT(describe_job(job, 0), HasSubstr("reserved for it: node7, node8"));
  v1::ListJobsResponse jobs;
  *jobs.add_jobs() = job;
  EXPECT_THAT(describe_job_list(jobs, 0), HasSubstr("2 of 4"));
  EXPECT_EQ(daemon::job_to_json(job)["nodes"], 2);
  EXPECT_EQ(daemon::job_to_json(job)["held"].size(), 2U);
  job.set_nodes(4);
  EXPECT_THAT(describe_job(job, 0), HasSubstr("8 ranks on 4 nodes"));
  v1::ListWorkersResponse workers;
  v1::WorkerInfo& worker = *workers.add_workers();
  worker.set_slots_used(2);
  worker.set_slots_held(2);
  EXPECT_THAT(describe_workers(workers), HasSubstr("2 (2 held)"));
  EXPECT_EQ(describe_gpus(worker), "-");
  EXPECT_THAT(describe_node_list(workers, 0), Not(HasSubstr("DOMAIN")));
  worker.set_domain("rack1");
  EXPECT_THAT(describe_node_list(workers, 0), HasSubstr("NODE  HOST  DOMAIN"));
  EXPECT_THAT(describe_node_list(workers, 0), HasSubstr("rack1"));
  worker.set_no_gpus_because("the driver is not loaded");
  EXPECT_THAT(describe_node_list(workers, 0), HasSubstr("no GPUs: the driver is not loaded"));
  for (int i = 0; i < 8; ++i) worker.add_gpus()->set_name("NVIDIA H100");
  worker.set_gpus_used(3);
  EXPECT_THAT(describe_workers(workers), HasSubstr("3 of 8 used, NVIDIA H100  "));
  EXPECT_THAT(describe_node_list(workers, 0), HasSubstr("3 of 8 used, NVIDIA H100  "));
}

// State after a restart of the coordinator, until its workers have registered again.
TEST(JobView, AnUnregisteredWorkerDoesNotCountAsSilent) {
  v1::ListWorkersResponse workers;
  v1::WorkerInfo& worker = *workers.add_workers();
  worker.set_name("node1");
  EXPECT_THAT(describe_workers(workers), HasSubstr("not yet registered"));
  EXPECT_THAT(describe_workers(workers), Not(HasSubstr("ago")));
  worker.set_slots(8);
  EXPECT_THAT(describe_workers(workers), HasSubstr("away"));
}

TEST(JobView, TextForPeople) {
  const std::string status = describe_job(running_job(), 61'000'000'000);
  EXPECT_THAT(status, HasSubstr("RUNNING"));
  EXPECT_THAT(status, HasSubstr("every rank is up"));
  EXPECT_THAT(status, HasSubstr("42/100"));
  EXPECT_THAT(status, HasSubstr("1m 00s ago"));
  EXPECT_THAT(status, HasSubstr("newest checkpoint: step 40"));
  v1::ListJobsResponse jobs;
  *jobs.add_jobs() = running_job();
  // as the coordinator sends lists
  jobs.mutable_jobs(0)->mutable_spec()->clear_train_config_json();
  EXPECT_THAT(describe_job_list(jobs, 61'000'000'000), HasSubstr("42/100"));
  EXPECT_THAT(describe_job_list(jobs, 61'000'000'000), HasSubstr("2.00k")) << "all ranks' tokens/s";
  jobs.mutable_jobs(0)->clear_ranks();
  EXPECT_THAT(describe_job_list(jobs, 61'000'000'000), HasSubstr("-/100"));
  EXPECT_THAT(describe_job_list(jobs, 0), Not(HasSubstr("--all")));
  jobs.set_more(true);
  EXPECT_THAT(describe_job_list(jobs, 0), HasSubstr("--all"));
}

// Texts of other users must not control the terminal or imitate our lines.
TEST(JobView, ShowsTheRevisionsOfAJob) {
  v1::Job job = running_job();
  EXPECT_EQ(describe_job(job, 2'000'000'000).find("revision"), std::string::npos);
  job.set_revision(3);
  job.set_former_revision(2);
  v1::Revision& second = *job.add_revisions();
  second.set_revision(2);
  second.set_change("learning_rate=1e-4");
  second.set_end("passed its trial of 50 steps");
  v1::Revision& third = *job.add_revisions();
  third.set_revision(3);
  third.set_change("steps=\x1b[2J");
  third.set_rollback_steps(50);
  v1::Revision& pending = *job.add_revisions();
  pending.set_revision(4);
  pending.set_change("steps=9");
  pending.set_pending(true);
  const std::string text = describe_job(job, 2'000'000'000);
  EXPECT_THAT(text, testing::HasSubstr("  revision 2, 2s ago: learning_rate=1e-4; passed its trial "
                                       "of 50 steps\n"));
  EXPECT_THAT(text, testing::HasSubstr("  revision 3 (current), 2s ago: steps=\\x1b[2J; on trial "
                                       "for 50 steps; if it fails, the job returns to revision "
                                       "2\n"));
  EXPECT_THAT(text, testing::HasSubstr("  revision 4, 2s ago: steps=9; pending\n"));
  const auto json = daemon::job_to_json(job);
  EXPECT_EQ(json["revision"], 3);
  EXPECT_EQ(json["revisions"][2]["pending"], true);
}

TEST(JobView, TheTextOfAChangeHasNoSecrets) {
  EXPECT_EQ(
      change_text({"learning_rate=1e-4", "hf_access_token=hf_x"}, {"WANDB_API_KEY=w", "HOME"}, {}),
      "learning_rate=1e-4 hf_access_token --env WANDB_API_KEY --env HOME");
  v1::JobSpec program;
  for (const char* word : {"train", "--api-key=k"}) program.add_command(word);
  EXPECT_EQ(change_text({}, {}, program), "-- train and 1 argument");
}

TEST(JobView, ARestartHidesNoSteps) {
  v1::Job job = running_job();
  job.mutable_ranks(0)->set_step(-1);
  job.set_newest_step(42);
  EXPECT_THAT(describe_job(job, 2'000'000'000),
              testing::HasSubstr("  step 42/100 before this attempt\n"));
}

TEST(JobView, TextForPeopleHasNoControlCharacters) {
  const std::string evil = "x\x1b[2J\n\xC2\x9By";
  v1::ListJobsResponse jobs;
  v1::Job& job = *jobs.add_jobs() = running_job();
  job.set_reason(evil);
  job.mutable_spec()->set_name(evil);
  job.mutable_spec()->set_user(evil);
  job.mutable_spec()->set_output_directory(evil);
  job.mutable_ranks(0)->set_worker(evil);
  job.mutable_ranks(0)->set_phase(evil);
  job.add_faults()->set_message(evil);
  job.add_faults()->set_worker(evil);
  v1::ListWorkersResponse workers;
  v1::WorkerInfo& worker = *workers.add_workers();
  worker.set_name(evil);
  worker.set_host(evil);
  worker.set_version(evil);
  worker.set_domain(evil);
  worker.mutable_exclusion()->set_reason(evil);
  for (const std::string& text :
       {headline(job), describe_job(job, 0), describe_job_list(jobs, 0), describe_workers(workers),
        describe_node_list(workers, 0), describe_node(worker, 0)}) {
    EXPECT_THAT(text, HasSubstr(R"(x\x1b[2J\x0a\x9by)"));
    EXPECT_EQ(text, escape_controls(text));
    EXPECT_THAT(text, Not(HasSubstr("2J\n")));
  }
}

TEST(NodeView, StatesWhyANodeIsExcludedAndForHowLong) {
  v1::WorkerInfo worker;
  worker.set_name("node7");
  worker.set_host("host7");
  worker.set_connected(true);
  EXPECT_EQ(describe_node(worker, 0), "node7 is good");
  v1::NodeExclusion& exclusion = *worker.mutable_exclusion();
  exclusion.set_cause("worker lost");
  exclusion.set_reason("it was restarted");
  exclusion.set_until_unix_ns(700'000'000'000);
  exclusion.set_times(2);
  worker.mutable_last_check()->set_passed(true);
  worker.mutable_last_check()->set_unix_ns(90'000'000'000);
  EXPECT_EQ(describe_node(worker, 100'000'000'000),
            "node7 is left out for 10m 00s: worker lost: it was restarted (2 times in a day); "
            "its check passed 10s ago");
  EXPECT_EQ(daemon::worker_to_json(worker)["exclusion"]["cause"], "worker lost");
  exclusion.set_until_unix_ns(0);
  v1::ListWorkersResponse workers;
  *workers.add_workers() = worker;
  EXPECT_THAT(describe_node_list(workers, 100'000'000'000), HasSubstr("left out until admitted"));
}

}  // namespace
}  // namespace muster::cli
