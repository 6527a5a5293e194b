// The page's API with a worker that the test controls.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/coordinator/shell/web/web_fixture.h"

namespace muster::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(WebApiTest, EveryResponseForbidsScriptsFromElsewhere) {
  for (const char* path : {"/", "/api/v1/session", "/api/v1/nothing", "/nothing.js"}) {
    const Answer answer = request("GET", path);
    EXPECT_THAT(answer.header, HasSubstr("Content-Security-Policy: default-src 'self'")) << path;
    EXPECT_THAT(answer.header, HasSubstr("X-Content-Type-Options: nosniff")) << path;
    EXPECT_THAT(answer.header, HasSubstr("X-Frame-Options: DENY")) << path;
  }
}

TEST_F(WebApiTest, TheObjectsAreThoseOfTheCommandLine) {
  FakeWorker worker(*fleet_);
  const uint64_t id = start_job(worker, 2, 3);
  const json job = get(absl::StrCat("/jobs/", id, "?ranks=2")).object();
  EXPECT_EQ(job.at("spec").at("name"), "llama");
  EXPECT_EQ(job.at("ranks").size(), 2U);
  EXPECT_EQ(job.at("ranks")[1].at("step"), 3);
  EXPECT_EQ(job.at("goodput").at("losses").is_array(), true);
  EXPECT_EQ(get(absl::StrCat("/jobs/", id)).object().at("ranks").size(), 1U);
  EXPECT_EQ(get("/jobs?search=LLAM&state=RUNNING&limit=1").object().at("jobs").size(), 1U);
  EXPECT_EQ(get("/jobs?search=nothing").object().at("jobs").size(), 0U);
  EXPECT_EQ(get("/nodes").object().at("nodes")[0].at("slots_used"), 2);
  EXPECT_EQ(get("/nodes/node0").object().at("name"), "node0");
  EXPECT_EQ(get(absl::StrCat("/jobs/", id, "/history")).object().at("attempts")[0].at("attempt"),
            1);
  EXPECT_EQ(get("/incidents").object().at("incidents").size(), 0U);
  eventually([&] {
    const json fleet = get("/fleet").object();
    // Its ranks make no further steps.
    int active = 0;
    for (const char* state : {"RUNNING", "SUSPECT", "DUMPING"})
      active += fleet.at("jobs").at(state).get<int>();
    return active == 1 && fleet.at("slots").at("used") == 2;
  });
  eventually([&] {
    const json columns = get(absl::StrCat("/jobs/", id, "/metrics")).object().at("columns");
    return columns.at("step") == json({3}) && columns.at("tokens_per_second") == json({2000}) &&
           columns.at("mfu") == json({0.25});
  });
  eventually([&] { return !get("/fleet/history").object().at("columns").at("unix_ns").empty(); });
}

TEST_F(WebApiTest, UnknownThingsAndWrongValuesAreNamed) {
  EXPECT_EQ(get("/jobs/9").status, 404);
  EXPECT_EQ(get("/jobs/9").error(), "there is no job 9");
  EXPECT_EQ(get("/jobs/9").object().at("error").at("code"), "NOT_FOUND");
  EXPECT_EQ(get("/jobs/x").status, 400);
  EXPECT_THAT(get("/jobs/0/ranks").error(), HasSubstr("job is 0: must be a number from 1 to"));
  EXPECT_THAT(get("/jobs?limit=0").error(), HasSubstr("limit is 0"));
  EXPECT_THAT(get("/jobs?state=GONE").error(), HasSubstr("must be QUEUED"));
  EXPECT_THAT(get("/jobs?colour=1").error(), HasSubstr("no parameter colour"));
  EXPECT_THAT(get("/nodes/%ff").error(), HasSubstr("must be UTF-8"));
  EXPECT_EQ(get("/nodes/node9").error(), "there is no node node9");
  EXPECT_EQ(get("/jobs/9/logs").status, 404);
  EXPECT_EQ(get("/incidents/9").status, 404);
  const Answer wrong = request("DELETE", "/api/v1/jobs/1");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_THAT(wrong.header, HasSubstr("Allow: GET, HEAD"));
  EXPECT_EQ(get("/nothing").status, 404);
}

TEST_F(WebApiTest, APostNeedsTheTokenOfThisSiteAndJson) {
  const std::string json_type = "Content-Type: application/json\r\n";
  EXPECT_THAT(request("POST", "/api/v1/jobs/1/cancel", "{}", json_type).error(),
              HasSubstr("X-Muster-CSRF"));
  const std::string csrf =
      "X-Muster-CSRF: " + get("/session").object().at("csrf").get<std::string>() + "\r\n";
  EXPECT_EQ(request("POST", "/api/v1/jobs/1/cancel", "{}", csrf).status, 415);
  EXPECT_EQ(request("POST", "/api/v1/jobs/1/cancel", "[]", csrf + json_type).status, 400);
  EXPECT_EQ(request("POST", "/api/v1/jobs/1/cancel", "{}", csrf + json_type).status, 404);
  EXPECT_EQ(post("/jobs/1/cancel", json::object(), "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(post("/login", {{"token", "viewer-0123456789abcdef"}}).status, 409);
  const Answer large =
      request("POST", "/api/v1/jobs", std::string(size_t{7} << 20, ' '), csrf + json_type);
  EXPECT_EQ(large.status, 413);
  // Only posts that need a role have bodies that wait for a thread.
  for (const auto& [verb, path] : {std::pair{"GET", "session"},
                                   {"POST", "login"},
                                   {"POST", "logout"},
                                   {"GET", "openapi.json"},
                                   {"GET", "jobs"}}) {
    const Answer answer =
        request(verb, absl::StrCat("/api/v1/", path), std::string(20'000, ' '), csrf + json_type);
    EXPECT_EQ(answer.status, 413) << path;
  }
  EXPECT_EQ(get("/session").status, 200);
}

TEST_F(WebApiTest, AJobIsCheckedSubmittedAndCancelled) {
  const json spec = {{"name", "a"},
                     {"nodes", 1},
                     {"ranks_per_node", 2},
                     {"output_directory", "/out"},
                     {"train_config", {{"steps", 3}}}};
  EXPECT_EQ(post("/jobs/check", {{"spec", spec}}).object(), json({{"ok", true}}));
  json wrong = spec;
  wrong["nodes"] = -1;
  EXPECT_THAT(post("/jobs/check", {{"spec", wrong}}).error(), HasSubstr("nodes is -1"));
  wrong["nodes"] = "many";
  EXPECT_EQ(post("/jobs/check", {{"spec", wrong}}).status, 400);
  wrong["nodes"] = nullptr;
  EXPECT_THAT(post("/jobs/check", {{"spec", wrong}}).error(), HasSubstr("nodes is null"));
  wrong = spec;
  wrong["colour"] = 1;
  EXPECT_THAT(post("/jobs", {{"spec", wrong}, {"request_id", "1"}}).error(), HasSubstr("colour"));
  EXPECT_THAT(post("/jobs", {{"spec", spec}}).error(), HasSubstr("request_id is missing"));
  const json job = post("/jobs", {{"spec", spec}, {"request_id", "1"}}).object();
  EXPECT_EQ(job.at("state"), "QUEUED");
  EXPECT_EQ(job.at("spec").at("train_config"), json({{"steps", 3}}));
  EXPECT_EQ(post("/jobs", {{"spec", spec}, {"request_id", "1"}}).object().at("id"), job.at("id"));
  const std::string path = absl::StrCat("/jobs/", job.at("id").get<uint64_t>(), "/cancel");
  EXPECT_EQ(post(path, {{"force", true}}).object().at("state"), "CANCELLED");
  EXPECT_EQ(post(path, json::object()).status, 409);
}

TEST_F(WebApiTest, ANodeIsExcludedAndAdmitted) {
  FakeWorker worker(*fleet_);
  worker.send(registration("node0", 1, 2));
  ASSERT_TRUE(worker.next().has_registered());
  EXPECT_EQ(post("/nodes/node0/exclude", json::object()).status, 400);
  const json node = post("/nodes/node0/exclude", {{"reason", "fans"}, {"seconds", 60}}).object();
  EXPECT_EQ(node.at("exclusion").at("reason"), "fans");
  eventually([&] { return get("/fleet").object().at("nodes").at("excluded") == 1; });
  EXPECT_FALSE(post("/nodes/node0/admit", json::object()).object().contains("exclusion"));
  EXPECT_EQ(post("/nodes/node9/exclude", {{"reason", "fans"}}).status, 404);
}

TEST_F(WebApiTest, ViewersReceiveAllOnceAndThenWhatChanges) {
  FakeWorker worker(*fleet_);
  const uint64_t id = start_job(worker, 1, 3);
  EventStream first(server_->http_port(), absl::StrCat("/api/v1/events?job=", id));
  EXPECT_THAT(first.until("event: snapshot"), StartsWith("HTTP/1.1 200 OK\r\n"));
  const std::string begin = first.until("event: job");
  EXPECT_THAT(begin, HasSubstr("\"name\":\"llama\""));
  EXPECT_THAT(begin, Not(HasSubstr("train_config")));
  first.forget();
  worker.heartbeat(id, 1, 1, 4);
  EXPECT_THAT(first.until("event: point"), HasSubstr("\"step\":4"));
  const std::string delta = first.until("event: delta");
  first.until("\n\n");
  const std::string id_of_delta = last_id(delta);
  // A viewer who comes back receives what it missed, and one with an unknown id everything.
  worker.heartbeat(id, 1, 1, 5);
  EXPECT_THAT(first.until("\"step\":5"), Not(HasSubstr("event: snapshot")));
  EventStream again(server_->http_port(), "/api/v1/events",
                    "Last-Event-ID: " + id_of_delta + "\r\n");
  EXPECT_THAT(again.until("\"step\":5"), Not(HasSubstr("event: snapshot")));
  for (const char* unknown : {"1-99999", "99-1", "x", "-", "1-"}) {
    EventStream other(server_->http_port(), "/api/v1/events",
                      absl::StrCat("Last-Event-ID: ", unknown, "\r\n"));
    other.until("event: snapshot");
  }
}

TEST_F(WebApiTest, StreamsOfEventsAndOfOutputArePinged) {
  ping_every_ = std::chrono::milliseconds(50);
  restart();
  FakeWorker worker(*fleet_);
  const uint64_t id = start_job(worker, 1, 3);
  EventStream events(server_->http_port(), "/api/v1/events");
  events.until("event: ping\ndata: {}\n\n");
  EventStream output(server_->http_port(), absl::StrCat("/api/v1/jobs/", id, "/logs/events"));
  output.until("event: ping\ndata: {}\n\n");
}

TEST_F(WebApiTest, CallsAreCountedByMethodAndCode) {
  EXPECT_EQ(get("/jobs/9").status, 404);
  EXPECT_EQ(get("/jobs").status, 200);
  EXPECT_EQ(post("/login", {{"token", "viewer-0123456789abcdef"}}).status, 409);
  const std::string page = http_get(server_->http_port(), "/metrics");
  for (const char* line :
       {"{code=\"NOT_FOUND\",method=\"GetJob\"} 1\n", "{code=\"OK\",method=\"ListJobs\"} 1\n",
        "{code=\"FAILED_PRECONDITION\",method=\"Login\"} 1\n"})
    EXPECT_THAT(page, HasSubstr(std::string("muster_coordinator_rpcs_total") + line));
}

TEST_F(WebApiTest, AnUnknownJobIsGone) {
  EventStream stream(server_->http_port(), "/api/v1/events?job=9");
  stream.until("event: gone\ndata: {\"job\":9}\n\n");
}

TEST_F(WebApiTest, RanksAreColumns) {
  FakeWorker worker(*fleet_);
  const uint64_t id = start_job(worker, 3, 7);
  const Answer answer = get(absl::StrCat("/jobs/", id, "/ranks"));
  ASSERT_EQ(answer.status, 200);
  uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, answer.body.data(), sizeof(header_bytes));
  const json header = json::parse(answer.body.substr(4, header_bytes));
  EXPECT_EQ(header.at("ranks"), 3);
  EXPECT_EQ(header.at("ranks_per_node"), 3);
  std::set<std::string> names;
  for (const json& column : header.at("columns")) {
    names.insert(column.at("name"));
    const size_t offset = column.at("offset"), count = column.at("count");
    const size_t size = column.at("type") == "u8" ? 1 : 4;
    EXPECT_EQ(offset % 8, 0U) << column;
    ASSERT_LE(offset + count * size, answer.body.size()) << column;
    const bool is_of_nodes = column.at("name").get<std::string>().starts_with("node_");
    EXPECT_EQ(count, is_of_nodes ? 1U : 3U) << column;
    if (column.at("name") == "step") {
      int32_t step = 0;
      std::memcpy(&step, answer.body.data() + offset + 4, sizeof(step));
      EXPECT_EQ(step, 7);
    }
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"life", "phase", "step", "straggler", "progress_age",
                                              "node_heartbeat_age"}));
  const size_t at = answer.header.find("ETag: ") + 6;
  const std::string etag = answer.header.substr(at, answer.header.find("\r\n", at) - at);
  EXPECT_EQ(get(absl::StrCat("/jobs/", id, "/ranks"), "If-None-Match: " + etag + "\r\n").status,
            304);
  const json map = get(absl::StrCat("/jobs/", id, "/placement")).object();
  EXPECT_EQ(map.at("nodes"), json({"node0"}));
  EXPECT_EQ(map.at("phases")[5], "STEP");
}

TEST_F(WebApiTest, PlacementIsThatOfTheNewestAttempt) {
  FakeWorker worker(*fleet_);
  const uint64_t id = start_job(worker, 1, 7, 3);
  const std::string path = absl::StrCat("/jobs/", id, "/placement");
  EXPECT_EQ(get(path).object().at("attempt"), 1);
  worker.exited(id, 1, 0, 1);
  eventually([&] { return get(absl::StrCat("/jobs/", id)).object()["attempt"] == 2; });
  EXPECT_EQ(get(path).object().at("attempt"), 2) << "the stored answer is that of attempt 1";
}

}  // namespace
}  // namespace muster::coordinator
