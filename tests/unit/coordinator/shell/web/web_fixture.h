// A complete coordinator in this process, and clients of its page's API.
#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/coordinator/shell/shell_fixture.h"

namespace muster::coordinator {

struct Answer {
  int status = 0;
  std::string header;
  std::string body;

  nlohmann::json object() const { return nlohmann::json::parse(body); }
  std::string error() const { return object().at("error").at("message"); }
};

class WebApiTest : public ShellTest {
 protected:
  Answer request(const std::string& method, const std::string& path, const std::string& body = "",
                 const std::string& headers = "") {
    RawConnection connection(server_->http_port());
    connection.send(absl::StrCat(method, " ", path,
                                 " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", headers,
                                 "Content-Length: ", body.size(), "\r\n\r\n", body));
    const std::string text = connection.receive_all();
    Answer answer;
    const size_t end = text.find("\r\n\r\n");
    if (text.size() < 12 || end == std::string::npos) return answer;
    answer.status = std::stoi(text.substr(9, 3));
    answer.header = text.substr(0, end);
    answer.body = text.substr(end + 4);
    return answer;
  }
  Answer get(const std::string& path, const std::string& headers = "") {
    return request("GET", "/api/v1" + path, "", headers);
  }
  Answer post(const std::string& path, const nlohmann::json& body,
              const std::string& headers = "") {
    const std::string csrf = get("/session").object().at("csrf");
    return request(
        "POST", "/api/v1" + path, body.dump(),
        absl::StrCat("Content-Type: application/json\r\nX-Muster-CSRF: ", csrf, "\r\n", headers));
  }

  // Starts a job with `ranks` ranks on one worker, which reports the step.
  uint64_t start_job(FakeWorker& worker, int ranks, int64_t step, int restarts_max = 0) {
    worker.send(registration("node0", 1, ranks));
    EXPECT_TRUE(worker.next().has_registered());
    v1::Job job;
    v1::SubmitJobRequest request = submission("llama", ranks);
    request.mutable_spec()->set_restarts_max(restarts_max);
    EXPECT_TRUE(submit(request, &job).ok());
    while (true) {
      const v1::CoordinatorMessage message = worker.next();
      if (message.has_start_ranks()) break;
      if (message.body_case() == v1::CoordinatorMessage::BODY_NOT_SET) {
        ADD_FAILURE() << "the stream has ended";
        break;
      }
    }
    worker.heartbeat(job.id(), 1, ranks, step);
    eventually(
        [&] { return get(absl::StrCat("/jobs/", job.id())).object()["state"] == "RUNNING"; });
    return job.id();
  }

  void eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 400; ++i) {
      if (condition()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    ADD_FAILURE() << "the condition did not come true within ten seconds";
  }
};

// A stream of server-sent events, read until a condition.
class EventStream {
 public:
  EventStream(int port, const std::string& path, const std::string& headers = "")
      : connection_(port) {
    connection_.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
  }
  // Reads until the text contains `part`. Returns everything so far.
  std::string until(const std::string& part) {
    while (text_.find(part) == std::string::npos) {
      const std::string more = connection_.receive();
      if (more.empty()) break;
      text_ += more;
    }
    EXPECT_THAT(text_, ::testing::HasSubstr(part));
    return text_;
  }
  void forget() { text_.clear(); }

 private:
  RawConnection connection_;
  std::string text_;
};

inline std::string last_id(const std::string& text) {
  const size_t at = text.rfind("id: ");
  return at == std::string::npos ? "" : text.substr(at + 4, text.find('\n', at) - at - 4);
}

}  // namespace muster::coordinator
