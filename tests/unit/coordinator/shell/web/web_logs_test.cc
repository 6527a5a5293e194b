// The output of ranks by the page's API.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "coordinator/shell/web/gzip.h"
#include "tests/unit/coordinator/shell/web/web_fixture.h"

namespace muster::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using WebLogsTest = WebApiTest;

TEST_F(WebLogsTest, LargeAnswersAreCompressed) {
  FakeWorker worker(*fleet_);
  const uint64_t id = start_job(worker, 1, 3);
  const std::string output(40'000, 'x');
  worker.log(id, 1, 0, 0, output);
  const std::string path = absl::StrCat("/jobs/", id, "/logs");
  eventually([&] { return get(path).object().at("size") == output.size(); });
  const Answer answer = get(path, "Accept-Encoding: gzip, deflate\r\n");
  EXPECT_THAT(answer.header, HasSubstr("Content-Encoding: gzip"));
  EXPECT_LT(answer.body.size(), 1'000U);
  EXPECT_EQ(json::parse(unzipped(answer.body)).at("chunks")[0].at("text"), output);
  EXPECT_THAT(get(path).header, Not(HasSubstr("Content-Encoding")));
}

TEST_F(WebLogsTest, AJobThatWaitsHasNoOutput) {
  const json spec = {{"name", "a"},
                     {"nodes", 1},
                     {"ranks_per_node", 1},
                     {"output_directory", "/out"},
                     {"train_config", {{"steps", 3}}}};
  const auto id =
      post("/jobs", {{"spec", spec}, {"request_id", "1"}}).object().at("id").get<uint64_t>();
  const json logs = get(absl::StrCat("/jobs/", id, "/logs")).object();
  EXPECT_EQ(logs.at("size"), 0);
  EXPECT_TRUE(logs.at("chunks").empty());
}

TEST_F(WebLogsTest, LogsAreReadInPartsAndFollowed) {
  FakeWorker worker(*fleet_);
  const uint64_t id = start_job(worker, 2, 1);
  worker.log(id, 1, 0, 0, "<script>first\n");
  eventually([&] { return get(absl::StrCat("/jobs/", id, "/logs")).object().at("size") == 14; });
  const json part = get(absl::StrCat("/jobs/", id, "/logs?offset=8&limit=3")).object();
  EXPECT_EQ(part.at("chunks")[0].at("text"), "fir");
  EXPECT_EQ(part.at("next_offset"), 11);
  EXPECT_EQ(get(absl::StrCat("/jobs/", id, "/logs?tail=3")).object().at("chunks")[0].at("text"),
            "st\n");
  EXPECT_THAT(get(absl::StrCat("/jobs/", id, "/logs?rank=5")).error(), HasSubstr("rank is 5"));
  EXPECT_EQ(get(absl::StrCat("/jobs/", id, "/logs?tail=3&offset=1")).status, 400);
  EventStream all(server_->http_port(), absl::StrCat("/api/v1/jobs/", id, "/logs/events"));
  all.until("<script>first\\n");
  worker.log(id, 1, 1, 0, "bad \xff byte\n");
  all.until("bad \xef\xbf\xbd byte");
  EventStream one(server_->http_port(), absl::StrCat("/api/v1/jobs/", id, "/logs/events?rank=0"),
                  "Last-Event-ID: 1-8\r\n");
  EXPECT_THAT(one.until("first"), Not(HasSubstr("script")));
}

// Replaces a file by a pipe, whose readers wait until the end of this object.
class StalledFile {
 public:
  explicit StalledFile(const std::filesystem::path& path) : path_(path) {
    std::filesystem::remove(path_);
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
  }
  ~StalledFile() {
    // Readers that come later find this writer.
    for (int i = 0; i < 400 && writer_ < 0; ++i) {
      writer_ = open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
      if (writer_ < 0) std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
  }
  StalledFile(const StalledFile&) = delete;
  StalledFile& operator=(const StalledFile&) = delete;

 private:
  const std::filesystem::path path_;
  int writer_ = -1;  // stays open
};

TEST_F(WebLogsTest, ADiskThatDoesNotAnswerDelaysOnlyTheOutputOfRanks) {
  FakeWorker worker(*fleet_);
  const uint64_t id = start_job(worker, 1, 1);
  worker.log(id, 1, 0, 0, "first\n");
  eventually([&] { return get(absl::StrCat("/jobs/", id, "/logs")).object().at("size") == 6; });
  std::filesystem::path log;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder_.path()))
    if (file.path().filename() == "rank-0.log") log = file.path();
  const StalledFile stalled(log);
  std::vector<std::unique_ptr<RawConnection>> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(std::make_unique<RawConnection>(server_->http_port()));
    waiting.back()->send(absl::StrCat("GET /api/v1/jobs/", id,
                                      i % 2 == 0 ? "/logs" : "/logs/events",
                                      " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  }
  for (int round = 0; round < 2; ++round) {
    for (const char* path : {"/healthz", "/readyz", "/metrics", "/api/v1/nodes", "/api/v1/fleet"}) {
      RawConnection probe(server_->http_port());
      probe.send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
      EXPECT_THAT(probe.receive(), StartsWith("HTTP/1.1 200")) << path;
    }
  }
}

}  // namespace
}  // namespace muster::coordinator
