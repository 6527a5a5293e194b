// `muster update` against a coordinator that changes the job meanwhile, loses an answer, or has a
// job without settings.
#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "muster/v1/muster.grpc.pb.h"
#include "tests/paths.h"

namespace muster::cli {
namespace {

using testing::HasSubstr;

class UpdatedCoordinator : public v1::Muster::Service {
 public:
  UpdatedCoordinator() {
    job.set_id(7);
    job.set_state(v1::RUNNING);
    job.set_revision(3);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~UpdatedCoordinator() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::Job* response) override {
    *response = job;
    return grpc::Status::OK;
  }
  grpc::Status UpdateJob(grpc::ServerContext*, const v1::UpdateJobRequest* request,
                         v1::UpdateJobResponse* response) override {
    const std::lock_guard lock(mutex_);
    requests.push_back(*request);
    if (requests.size() > answers.size()) {
      *response->mutable_job() = job;
      return grpc::Status::OK;
    }
    return answers[requests.size() - 1];
  }

  // Runs muster update 7 with these arguments. Returns its exit code, and its output in `output`.
  int update(const std::string& arguments) {
    std::FILE* pipe =
        popen(absl::StrCat("exec 2>&1; ", bin_dir(), "/muster update 7 --coordinator ",
                           "127.0.0.1:", port_, " ", arguments)
                  .c_str(),
              "r");
    output.clear();
    std::array<char, 4096> buffer{};
    while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe))
      output.append(buffer.data(), got);
    return WEXITSTATUS(pclose(pipe));
  }

  v1::Job job;
  std::vector<grpc::Status> answers;  // those of the first requests; later ones succeed
  std::vector<v1::UpdateJobRequest> requests;
  std::string output;

 private:
  int port_ = 0;
  std::mutex mutex_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(Update, AJobThatWasUpdatedMeanwhileIsNotUpdatedAgain) {
  UpdatedCoordinator coordinator;
  coordinator.job.mutable_spec()->add_command("./train");
  coordinator.answers = {{grpc::StatusCode::ABORTED,
                          "job 7 has revision 4 now, and the update was made for revision 3: "
                          "repeat the command"}};
  EXPECT_NE(coordinator.update("--env WANDB_API_KEY=secret -- ./train --key=hidden"), 0);
  EXPECT_THAT(coordinator.output, HasSubstr("revision 3: repeat the command"));
  ASSERT_EQ(coordinator.requests.size(), 1U) << "the user decides about the other change";
  const v1::UpdateJobRequest& request = coordinator.requests[0];
  EXPECT_EQ(request.revision(), 3);
  EXPECT_EQ(request.change(), "--env WANDB_API_KEY -- ./train and 1 argument");
  EXPECT_EQ(request.spec().environment().at("WANDB_API_KEY"), "secret");
}

TEST(Update, ARequestWithALostAnswerIsRepeatedWithItsId) {
  UpdatedCoordinator coordinator;
  coordinator.job.mutable_spec()->add_command("./train");
  coordinator.answers = {{grpc::StatusCode::UNAVAILABLE, "leaving"}};
  EXPECT_EQ(coordinator.update("--env A=b"), 0) << coordinator.output;
  ASSERT_EQ(coordinator.requests.size(), 2U);
  EXPECT_FALSE(coordinator.requests[0].request_id().empty());
  EXPECT_EQ(coordinator.requests[0].request_id(), coordinator.requests[1].request_id());
}

TEST(Update, AWithdrawalNamesThePendingRevision) {
  UpdatedCoordinator coordinator;
  v1::Revision& passed = *coordinator.job.add_revisions();
  passed.set_revision(3);
  v1::Revision& pending = *coordinator.job.add_revisions();
  pending.set_revision(5);
  pending.set_pending(true);
  EXPECT_EQ(coordinator.update("--cancel"), 0) << coordinator.output;
  ASSERT_EQ(coordinator.requests.size(), 1U);
  EXPECT_TRUE(coordinator.requests[0].withdraw());
  EXPECT_EQ(coordinator.requests[0].revision(), 5);
}

TEST(Update, AConfigWithoutSettingsCannotBeChanged) {
  UpdatedCoordinator coordinator;
  coordinator.job.mutable_spec()->set_train_config_json("{}");
  EXPECT_NE(coordinator.update("learning_rate=1e-4"), 0);
  EXPECT_THAT(coordinator.output, HasSubstr("the job has no record of its settings"));
  EXPECT_TRUE(coordinator.requests.empty());
  EXPECT_EQ(coordinator.update("--env A=b"), 0) << coordinator.output;
}

}  // namespace
}  // namespace muster::cli
