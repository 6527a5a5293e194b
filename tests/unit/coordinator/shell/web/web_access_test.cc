#include "coordinator/shell/web/web_access.h"

#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "coordinator/shell/web/guarded_events.h"
#include "coordinator/shell/web/refusal_log.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kViewer = "viewer-0123456789abcdef";
constexpr const char* kWorker = "worker-0123456789abcdef";

daemon::HttpRequest from_here(const std::string& host) {
  daemon::HttpRequest request;
  request.method = "POST";
  request.is_from_here = true;
  request.headers["host"] = host;
  return request;
}

class WebAccessTest : public testing::Test {
 protected:
  WebAccess with_tokens() {
    for (const auto& [role, token] : {std::pair{"viewer", kViewer}, std::pair{"worker", kWorker}})
      std::ofstream(folder_.path() + "/" + role) << token << "\n";
    auto tokens = Tokens::open(folder_.path());
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    return WebAccess({.tokens = *std::move(tokens), .serves_strangers = true, .port = 7071});
  }

  TempFolder folder_;
};

TEST_F(WebAccessTest, WithoutTokensOnlyThisMachineIsServed) {
  const WebAccess access({});
  for (const char* host : {"127.0.0.1:7071", "localhost:7071", "[::1]:7071", "10.0.0.1", "head"})
    EXPECT_TRUE(access.check_host(from_here(host)).ok()) << host;
  // A name of another site that resolves to this machine.
  for (const char* host : {"evil.example:7071", "127.0.0.1.evil.example", "[evil.example]:1"})
    EXPECT_THAT(std::string(access.check_host(from_here(host)).message()),
                HasSubstr("without tokens"))
        << host;
  daemon::HttpRequest stranger = from_here("10.0.0.1:7071");
  stranger.is_from_here = false;
  EXPECT_THAT(std::string(access.check_host(stranger).message()), HasSubstr("--token-dir"));
  EXPECT_TRUE(WebAccess({.serves_strangers = true}).check_host(stranger).ok());
  EXPECT_FALSE(WebAccess({.is_on_loopback = false}).check_host(from_here("10.0.0.1:7071")).ok())
      << "it may be a proxy";
  EXPECT_EQ(access.caller_of(stranger).role, Role::kAdmin);
}

TEST_F(WebAccessTest, ACertificateVouchesForTheHost) {
  const WebAccess access({.serves_strangers = true});
  daemon::HttpRequest request = from_here("muster.training.svc:7071");
  EXPECT_FALSE(access.check_host(request).ok());
  request.is_secure = true;
  EXPECT_TRUE(access.check_host(request).ok());
}

TEST_F(WebAccessTest, WithoutTokensOtherSitesDoNotUseTheApi) {
  const WebAccess access({});
  daemon::HttpRequest request = from_here("localhost:7071");
  request.path = "/api/v1/events";
  for (const auto& [site, is_served] :
       {std::pair{"cross-site", false}, std::pair{"same-site", false},
        std::pair{"same-origin", true}, std::pair{"none", true}}) {
    request.headers["sec-fetch-site"] = site;
    EXPECT_EQ(access.check_host(request).ok(), is_served) << site;
  }
  request.headers.erase("sec-fetch-site");
  request.headers["host"] = "localhost:7071";
  for (const auto& [origin, is_served] :
       {std::pair{"http://localhost:7071", true}, std::pair{"http://evil.example", false},
        std::pair{"null", false}}) {
    request.headers["origin"] = origin;
    EXPECT_EQ(access.check_host(request).ok(), is_served) << origin;
  }
  request.headers.erase("origin");
  request.headers["sec-fetch-site"] = "cross-site";
  request.path = "/";
  EXPECT_TRUE(access.check_host(request).ok()) << "a link to the page";
}

TEST_F(WebAccessTest, AStreamEndsOnceItsTokenIsRemoved) {
  struct Sink : daemon::HttpSink {
    void send(std::shared_ptr<const std::string> part) override { text += *part; }
    void end() override { has_ended = true; }
    std::string text;
    bool has_ended = false;
  };
  struct Source : daemon::HttpSource {
    explicit Source(bool& has_left) : has_left_(has_left) {}
    ~Source() override { has_left_ = true; }
    bool& has_left_;
  };
  const WebAccess access = with_tokens();
  const WebCaller caller = access.caller_of_token(kViewer);
  const auto sink = std::make_shared<Sink>();
  bool has_left = false;
  GuardedEvents events(sink, std::make_shared<Source>(has_left), [&] {
    return access.check_role(access.renewed(caller), Role::kViewer, "WatchJob");
  });
  events.on_ping();
  EXPECT_EQ(sink->text, "event: ping\ndata: {}\n\n");
  EXPECT_FALSE(has_left);
  std::ofstream(folder_.path() + "/viewer") << "another-0123456789abcdef\n";
  for (int i = 0; i < 200 && !sink->has_ended; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    events.on_ping();
  }
  EXPECT_TRUE(sink->has_ended);
  EXPECT_TRUE(has_left);
  EXPECT_THAT(sink->text, HasSubstr("event: end\ndata: {\"message\":\"log in first"));
}

TEST(RefusalLog, LogsAtALimitedRate) {
  RefusalLog log;
  const Instant now{std::chrono::hours(1)};
  EXPECT_EQ(log.note("10.0.0.5", now), "refused an unknown token from 10.0.0.5 on the page's port");
  for (int i = 0; i < 7; ++i) EXPECT_EQ(log.note("10.0.0.5", now), std::nullopt);
  EXPECT_EQ(log.note("10.0.0.6", now + std::chrono::seconds(10)),
            "refused an unknown token from 10.0.0.6 on the page's port; 7 more since the last such "
            "line");
}

TEST_F(WebAccessTest, ACookieAndABearerTokenHaveTheirRole) {
  const WebAccess access = with_tokens();
  daemon::HttpRequest request = from_here("head.example:7071");
  EXPECT_TRUE(access.check_host(request).ok());
  EXPECT_EQ(access.caller_of(request).role, std::nullopt);
  const auto [name, cookie] = access.login_cookie(kViewer);
  EXPECT_EQ(name, "Set-Cookie");
  EXPECT_THAT(cookie, HasSubstr("; Secure; HttpOnly; SameSite=Strict"));
  EXPECT_THAT(cookie, Not(HasSubstr(kViewer)));
  request.headers["cookie"] = "other=1; " + cookie.substr(0, cookie.find(';'));
  EXPECT_EQ(access.caller_of(request).role, Role::kViewer);
  EXPECT_EQ(access.check_role(access.caller_of(request), Role::kSubmitter, "CancelJob").message(),
            "CancelJob needs the role submitter, and this token's is viewer");
  request.headers["authorization"] = std::string("Bearer ") + kWorker;
  EXPECT_EQ(access.caller_of(request).role, std::nullopt);
  request.headers["authorization"] = std::string("Bearer ") + kViewer;
  EXPECT_TRUE(access.caller_of(request).has_bearer);
  for (const char* damaged : {"__Host-muster-7071=zz", "__Host-muster-7071=0",
                              "__Host-muster-70711=", "__Host-muster-7071"}) {
    request.headers.erase("authorization");
    request.headers["cookie"] = damaged;
    EXPECT_EQ(access.caller_of(request).role, std::nullopt) << damaged;
  }
}

TEST_F(WebAccessTest, APostNeedsTheValueThatOnlyThisSiteCanRead) {
  const WebAccess access({});
  daemon::HttpRequest request = from_here("localhost:7071");
  const WebCaller caller = access.caller_of(request);
  ASSERT_EQ(caller.csrf.size(), 32U);
  EXPECT_THAT(std::string(access.check_post(request, caller).message()), HasSubstr("CSRF"));
  request.headers["x-muster-csrf"] = WebAccess({}).caller_of(request).csrf;  // another process's
  EXPECT_FALSE(access.check_post(request, caller).ok());
  request.headers["x-muster-csrf"] = caller.csrf;
  EXPECT_TRUE(access.check_post(request, caller).ok());
  request.headers["origin"] = "http://localhost:7071";
  EXPECT_TRUE(access.check_post(request, caller).ok());
  for (const char* origin : {"http://evil.example", "null", "http://localhost:8080"}) {
    request.headers["origin"] = origin;
    EXPECT_FALSE(access.check_post(request, caller).ok()) << origin;
  }
  request.headers.erase("origin");
  request.headers["sec-fetch-site"] = "cross-site";
  EXPECT_FALSE(access.check_post(request, caller).ok());
}

}  // namespace
}  // namespace muster::coordinator
