// A coordinator with TLS and tokens, and channels of callers with one of them.
#pragma once

#include <memory>
#include <string>

#include "daemon/client_credentials.h"
#include "tests/unit/certificates.h"
#include "tests/unit/coordinator/shell/shell_fixture.h"

namespace muster::coordinator {

inline constexpr const char* kWorkerToken = "worker-0123456789abcdef";
inline constexpr const char* kViewerToken = "viewer-0123456789abcdef";
inline constexpr const char* kAdminToken = "admin-0123456789abcdef";
inline constexpr const char* kHosts = "IP:127.0.0.1,DNS:localhost";

class TrustTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_.file("tokens"));
    write_file(folder_.file("tokens/worker"), kWorkerToken);
    write_file(folder_.file("tokens/viewer"), kViewerToken);
    write_file(folder_.file("tokens/admin"), kAdminToken);
    write_file(folder_.file("ca"), authority_.certificate());
    install(authority_.sign(kHosts));
    options_.listen = "127.0.0.1:0";
    options_.http = "127.0.0.1:0";
    options_.state_dir = folder_.file("state");
    options_.core.version = "test";
    options_.trust = {.tls_cert = folder_.file("crt"),
                      .tls_key = folder_.file("key"),
                      .token_dir = folder_.file("tokens")};
  }

  void install(const TestAuthority::Signed& pair) {
    write_file(folder_.file("key"), pair.key);
    write_file(folder_.file("crt"), pair.certificate);
  }
  void start() {
    auto server = Server::start(options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string refusal() { return std::string(Server::start(options_).status().message()); }

  // A new channel each time, like a program that has just started.
  std::shared_ptr<grpc::Channel> channel(const daemon::ClientSecrets& secrets) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", server_->grpc_port()),
                                     daemon::channel_credentials(secrets), arguments);
  }
  daemon::ClientSecrets with(const std::string& token) {
    return {.ca = authority_.certificate(), .pair = {}, .token = token};
  }
  grpc::Status list(const daemon::ClientSecrets& secrets) {
    grpc::ClientContext context;
    set_deadline(context);
    v1::ListJobsResponse response;
    return v1::Muster::NewStub(channel(secrets))->ListJobs(&context, {}, &response);
  }
  grpc::Status submit(const daemon::ClientSecrets& secrets) {
    grpc::ClientContext context;
    set_deadline(context);
    v1::SubmitJobResponse response;
    return v1::Muster::NewStub(channel(secrets))
        ->SubmitJob(&context, submission("a", 1), &response);
  }

  TempFolder folder_;
  TestAuthority authority_;
  ServerOptions options_;
  std::unique_ptr<Server> server_;
};

}  // namespace muster::coordinator
