// A coordinator with TLS and tokens, and callers with and without them.
#include <gmock/gmock.h>

#include <cmath>

#include "muster/v1/admin.grpc.pb.h"
#include "tests/unit/coordinator/shell/grpc/trust_fixture.h"

namespace muster::coordinator {
namespace {

using ::testing::HasSubstr;

TEST_F(TrustTest, ATokenAuthorisesItsRolesMethods) {
  start();
  EXPECT_TRUE(list(with(kViewerToken)).ok());
  const grpc::Status status = submit(with(kViewerToken));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(status.error_message(),
            "/muster.v1.Muster/SubmitJob needs the role submitter, and this token's is viewer");
  EXPECT_TRUE(submit(with(kAdminToken)).ok());
  EXPECT_EQ(list(with(kWorkerToken)).error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(TrustTest, OnlyAnAdminDescribesAndCopiesTheCoordinator) {
  start();
  const auto describe = [&](const char* token, v1::Coordinator& coordinator) {
    grpc::ClientContext context;
    set_deadline(context);
    return v1::Admin::NewStub(channel(with(token)))->GetCoordinator(&context, {}, &coordinator);
  };
  const auto copy = [&](const char* token, std::string& data) {
    grpc::ClientContext context;
    set_deadline(context);
    const auto stub = v1::Admin::NewStub(channel(with(token)));
    const auto reader = stub->BackupState(&context, {});
    for (v1::FileChunk chunk; reader->Read(&chunk);) data += chunk.data();
    return reader->Finish();
  };
  const auto profile = [&](const char* token, v1::ProfileKind kind, double seconds) {
    grpc::ClientContext context;
    set_deadline(context);
    v1::TakeProfileRequest request;
    request.set_kind(kind);
    request.set_seconds(seconds);
    const auto stub = v1::Admin::NewStub(channel(with(token)));
    const auto reader = stub->TakeProfile(&context, request);
    for (v1::FileChunk chunk; reader->Read(&chunk);) {
    }
    return reader->Finish();
  };
  v1::Coordinator coordinator;
  std::string data;
  for (const char* token : {kViewerToken, kWorkerToken}) {
    EXPECT_EQ(describe(token, coordinator).error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(copy(token, data).error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(profile(token, v1::PROFILE_KIND_HEAP, 0).error_code(),
              grpc::StatusCode::PERMISSION_DENIED);
  }
  EXPECT_EQ(data, "");
  ASSERT_TRUE(describe(kAdminToken, coordinator).ok());
  EXPECT_EQ(coordinator.certificate().problem(), "");
  EXPECT_GT(coordinator.certificate().not_after_unix_s(), time(nullptr));
  EXPECT_TRUE(coordinator.decides());
  EXPECT_GT(coordinator.open_fds(), 0);
  EXPECT_GT(coordinator.state_bytes(), 0U);
  ASSERT_TRUE(copy(kAdminToken, data).ok());
  EXPECT_EQ(data.substr(0, 15), "SQLite format 3");
  for (const double seconds : {0.0, 0.9, -1.0, 301.0, std::nan("")}) {
    const grpc::Status status = profile(kAdminToken, v1::PROFILE_KIND_CPU, seconds);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << seconds;
    EXPECT_THAT(status.error_message(), HasSubstr("it must be between 1 and 300"));
  }
  EXPECT_THAT(profile(kAdminToken, v1::PROFILE_KIND_UNSPECIFIED, 1).error_message(),
              HasSubstr("kind is 0: it must be"));
}

TEST_F(TrustTest, CallsWithoutAKnownTokenAreRejected) {
  start();
  grpc::Status status = list(with(""));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(), HasSubstr("--token-file"));
  status = list(with("other-0123456789abcdef"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(), HasSubstr("has no such token"));
}

TEST_F(TrustTest, PlainTextAndStrangersCertificatesEndInNoConnection) {
  start();
  EXPECT_EQ(list({}).error_code(), grpc::StatusCode::UNAVAILABLE);
  TestAuthority stranger;
  EXPECT_EQ(list({.ca = stranger.certificate(), .pair = {}, .token = kAdminToken}).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TrustTest, AWorkersStreamRequiresTheWorkersToken) {
  start();
  const auto join = [&](const char* token) {
    const auto fleet = v1::Fleet::NewStub(channel(with(token)));
    FakeWorker worker(*fleet);
    worker.send(registration("node0", 1, 2));
    if (worker.next().has_registered()) return grpc::Status::OK;
    return worker.end();
  };
  EXPECT_EQ(join(kAdminToken).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(join(kWorkerToken).ok());
  EXPECT_THAT(
      http_get(server_->http_port(), "/metrics"),
      HasSubstr(
          "muster_coordinator_rpcs_total{code=\"PERMISSION_DENIED\",method=\"Connect\"} 1\n"));
}

TEST_F(TrustTest, LaterConnectionsGetRenewedCertificates) {
#if !MUSTER_GRPC_WATCHES_CERTIFICATES
  GTEST_SKIP() << "this gRPC reads certificates once";
#endif
  start();
  ASSERT_TRUE(list(with(kViewerToken)).ok());
  TestAuthority later;
  install(later.sign(kHosts));
  const daemon::ClientSecrets trusts_later{
      .ca = later.certificate(), .pair = {}, .token = kViewerToken};
  const Instant give_up = monotonic_now() + std::chrono::seconds(30);
  grpc::Status status = list(trusts_later);
  while (!status.ok() && monotonic_now() < give_up) {
    usleep(100'000);
    status = list(trusts_later);
  }
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(TrustTest, AClientCaRequiresClientCertificates) {
  options_.trust.tls_client_ca = folder_.file("ca");
  options_.trust.token_dir.clear();
  start();
  EXPECT_EQ(list(with("")).error_code(), grpc::StatusCode::UNAVAILABLE);
  const auto own = authority_.sign("DNS:client");
  EXPECT_TRUE(
      list({.ca = authority_.certificate(), .pair = {own.certificate, own.key}, .token = ""}).ok());
  TestAuthority stranger;
  const auto others = stranger.sign("DNS:client");
  EXPECT_FALSE(
      list({.ca = authority_.certificate(), .pair = {others.certificate, others.key}, .token = ""})
          .ok());
}

TEST_F(TrustTest, ACertificateGrantsNoRoleBesideTokens) {
  options_.trust.tls_client_ca = folder_.file("ca");
  start();
  const auto own = authority_.sign("DNS:client");
  const auto list_with_both = [&](const char* token) {
    return list(
               {.ca = authority_.certificate(), .pair = {own.certificate, own.key}, .token = token})
        .error_code();
  };
  EXPECT_EQ(list_with_both(""), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(list_with_both(kWorkerToken), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(list_with_both(kViewerToken), grpc::StatusCode::OK);
  EXPECT_EQ(list(with(kViewerToken)).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TrustTest, ListenersBeyondLoopbackRequireAuthentication) {
  options_.listen = "0.0.0.0:0";
  options_.trust = {};
  EXPECT_THAT(refusal(), HasSubstr("no transport security; give --tls-cert"));
  options_.trust = {.tls_cert = folder_.file("crt"), .tls_key = folder_.file("key")};
  EXPECT_THAT(refusal(), HasSubstr("callers need no credentials; give --token-dir"));
  options_.trust.token_dir = folder_.file("tokens");
  start();
  EXPECT_TRUE(list(with(kViewerToken)).ok());
}

TEST_F(TrustTest, PagesForOthersAreRequestedByName) {
  options_.http = "0.0.0.0:0";
  EXPECT_THAT(refusal(), HasSubstr("--trusted-network"));
  options_.trusted_network = true;
  start();
}

TEST_F(TrustTest, FlagsAndFilesThatContradictEachOtherAreRefused) {
  options_.trust.tls_key.clear();
  EXPECT_THAT(refusal(), HasSubstr("--tls-cert and --tls-key go together"));
  options_.trust = {.token_dir = folder_.file("tokens")};
  EXPECT_THAT(refusal(), HasSubstr("--token-dir needs --tls-cert"));
  options_.trust = {.tls_client_ca = folder_.file("ca")};
  EXPECT_THAT(refusal(), HasSubstr("--tls-client-ca needs --tls-cert"));
  options_.trust = {.tls_cert = folder_.file("crt"), .tls_key = folder_.file("none")};
  EXPECT_THAT(refusal(), HasSubstr("--tls-key=" + folder_.file("none")));
  EXPECT_FALSE(std::filesystem::exists(options_.state_dir));
}

}  // namespace
}  // namespace muster::coordinator
