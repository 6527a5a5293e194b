#include "worker/shell/logs/otlp_logs.h"

#include <algorithm>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <spdlog/spdlog.h>

#include "common/text/escape.h"
#include "common/version.h"

namespace muster::worker {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::asio::ip::tcp;
using nlohmann::json;

constexpr const char* kDefaultPort = "4318";
constexpr const char* kLogsPath = "/v1/logs";
constexpr uint64_t kResponseBytesMax = 1 << 20;
constexpr size_t kTroubleBytesMax = 256;
// INFO in OpenTelemetry's log data model.
constexpr int kInfo = 9;

absl::Status bad_endpoint(const std::string& endpoint, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat("OTLP endpoint ",
                                                 printable(endpoint, kTroubleBytesMax), ": ", why,
                                                 "; it must be like http://127.0.0.1:4318"));
}

// Decodes %41 to A. Leaves invalid escapes unchanged.
std::string percent_decoded(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    const bool is_escape =
        text[i] == '%' && i + 2 < text.size() && absl::SimpleHexAtoi(text.substr(i + 1, 2), &code);
    out += is_escape ? static_cast<char>(code) : text[i];
    if (is_escape) i += 2;
  }
  return out;
}

bool is_header(const std::string& name, const std::string& value) {
  const auto is_token = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  const auto is_visible = [](char c) {
    return c == ' ' || absl::ascii_isgraph(static_cast<unsigned char>(c));
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), is_token) &&
         std::all_of(value.begin(), value.end(), is_visible);
}

json attribute(const std::string& key, const json& value) {
  // 64-bit numbers are strings in OTLP's JSON.
  if (value.is_number_integer()) return {{"key", key}, {"value", {{"intValue", value.dump()}}}};
  if (value.is_number()) return {{"key", key}, {"value", {{"doubleValue", value}}}};
  if (value.is_boolean()) return {{"key", key}, {"value", {{"boolValue", value}}}};
  return {
      {"key", key},
      {"value", {{"stringValue", value.is_string() ? value.get<std::string>() : value.dump()}}}};
}

// One request on its own connection. Yields the response's code, or 0 with the reason in `error`.
class Post {
 public:
  Post(const OtlpTarget& target, const std::string& body, Duration budget) : stream_(context_) {
    request_ = {http::verb::post, target.path, 11};
    request_.set(http::field::host, absl::StrCat(target.host, ":", target.port));
    request_.set(http::field::user_agent, absl::StrCat("muster-worker/", kVersion));
    request_.set(http::field::content_type, "application/json");
    for (const auto& [name, value] : target.headers) request_.set(name, value);
    request_.body() = body;
    request_.prepare_payload();
    parser_.body_limit(kResponseBytesMax);
    stream_.expires_after(budget);
    tcp::resolver resolver(context_);
    boost::system::error_code failed;
    const auto addresses = resolver.resolve(target.host, target.port, failed);
    if (failed) {
      fail("resolving", failed);
      return;
    }
    stream_.async_connect(addresses, [this](beast::error_code error, const tcp::endpoint&) {
      if (error) return fail("connecting", error);
      http::async_write(stream_, request_, [this](beast::error_code e, size_t) { on_sent(e); });
    });
    context_.run();
  }

  unsigned code() const { return code_; }
  const std::string& error() const { return error_; }

 private:
  void on_sent(beast::error_code error) {
    if (error) return fail("sending", error);
    http::async_read(stream_, buffer_, parser_, [this](beast::error_code e, size_t) {
      if (e) return fail("reading the answer", e);
      code_ = parser_.get().result_int();
    });
  }

  void fail(const char* what, const boost::system::error_code& error) {
    error_ = absl::StrCat(what, ": ", error.message());
  }

  boost::asio::io_context context_{1};
  beast::tcp_stream stream_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  beast::flat_buffer buffer_;
  unsigned code_ = 0;
  std::string error_;
};

// Codes that the protocol declares retryable; a retry does not help against others.
bool is_worth_repeating(unsigned code) {
  return code == 0 || code == 429 || code == 502 || code == 503 || code == 504;
}

}  // namespace

absl::StatusOr<OtlpTarget> otlp_target(const std::string& endpoint, const std::string& headers) {
  constexpr absl::string_view kScheme = "http://";
  if (absl::StartsWith(endpoint, "https://"))
    return bad_endpoint(endpoint,
                        "this version has no TLS for it: let a collector nearby pass logs on");
  if (!absl::StartsWith(endpoint, kScheme))
    return bad_endpoint(endpoint, "it is no http:// address");
  const absl::string_view rest = absl::string_view(endpoint).substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  const absl::string_view authority = rest.substr(0, slash);
  absl::string_view path = rest.substr(slash);
  while (absl::EndsWith(path, "/")) path.remove_suffix(1);
  // In an IPv6 address the port's colon follows the bracket.
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  const bool has_port =
      colon != absl::string_view::npos && (bracket == absl::string_view::npos || colon > bracket);
  OtlpTarget target;
  target.host = std::string(has_port ? authority.substr(0, colon) : authority);
  if (absl::StartsWith(target.host, "[") && absl::EndsWith(target.host, "]"))
    target.host = target.host.substr(1, target.host.size() - 2);
  target.port = has_port ? std::string(authority.substr(colon + 1)) : kDefaultPort;
  int port = 0;
  if (!absl::SimpleAtoi(target.port, &port) || port < 1 || port > 65'535)
    return bad_endpoint(endpoint, "its port is not between 1 and 65535");
  const auto is_plain = [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '@';
  };
  if (target.host.empty() || !std::all_of(rest.begin(), rest.end(), is_plain))
    return bad_endpoint(endpoint, "it has no plain host name");
  target.path = absl::StrCat(path, kLogsPath);
  for (const absl::string_view header : absl::StrSplit(headers, ',', absl::SkipWhitespace())) {
    const size_t equals = std::min(header.find('='), header.size());
    const std::string name(absl::StripAsciiWhitespace(header.substr(0, equals)));
    const std::string value =
        equals == header.size()
            ? ""
            : percent_decoded(absl::StripAsciiWhitespace(header.substr(equals + 1)));
    if (equals == header.size() || !is_header(name, value)) {
      return absl::InvalidArgumentError(
          "OTEL_EXPORTER_OTLP_HEADERS: each header is name=value, and they are separated by "
          "commas");
    }
    target.headers[name] = value;
  }
  return target;
}

json otlp_body(const std::vector<json>& records, const std::string& worker) {
  json out = json::array();
  for (const json& record : records) {
    json attributes = json::array();
    for (const auto& [key, value] : record.items()) {
      if (key != "message" && key != "severity" && key != "unix_ns" && key != "time")
        attributes.push_back(attribute(absl::StrCat("muster.", key), value));
    }
    out.push_back({{"timeUnixNano", absl::StrCat(record.value("unix_ns", int64_t{0}))},
                   {"severityNumber", kInfo},
                   {"severityText", record.value("severity", "INFO")},
                   {"body", {{"stringValue", record.value("message", "")}}},
                   {"attributes", std::move(attributes)}});
  }
  json resource, scope, body;
  resource["resource"]["attributes"] = json::array({attribute("service.name", "muster-worker"),
                                                    attribute("service.version", kVersion),
                                                    attribute("service.instance.id", worker)});
  scope["scope"] = {{"name", "muster.stack_traces"}, {"version", kVersion}};
  scope["logRecords"] = std::move(out);
  resource["scopeLogs"] = json::array({std::move(scope)});
  body["resourceLogs"] = json::array({std::move(resource)});
  return body;
}

OtlpLogs::OtlpLogs(OtlpTarget target, std::string worker, OtlpOptions options)
    : target_(std::move(target)),
      worker_(std::move(worker)),
      options_(options),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

OtlpLogs::~OtlpLogs() = default;

void OtlpLogs::send(const std::vector<json>& records) {
  if (records.empty()) return;
  Request request{otlp_body(records, worker_).dump(-1, ' ', false, json::error_handler_t::replace),
                  records.size()};
  const std::lock_guard lock(mutex_);
  if (queue_bytes_ + request.body.size() > options_.queue_bytes_max) {
    dropped_ += request.records;
    return;
  }
  queue_bytes_ += request.body.size();
  queue_.push_back(std::move(request));
  wake_.notify_one();
}

void OtlpLogs::run(const std::stop_token& stop) {
  while (true) {
    Request request;
    {
      std::unique_lock lock(mutex_);
      if (!wake_.wait(lock, stop, [this] { return !queue_.empty(); })) break;
      request = std::move(queue_.front());
      queue_.pop_front();
      queue_bytes_ -= request.body.size();
    }
    if (!deliver(request.body, stop)) dropped_ += request.records;
  }
}

bool OtlpLogs::deliver(const std::string& body, const std::stop_token& stop) {
  std::string why;
  Duration pause = options_.first_pause;
  for (int attempt = 0; attempt < options_.tries_max && !stop.stop_requested(); ++attempt) {
    if (attempt > 0) {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, stop, pause, [] { return false; });
      pause *= 2;
      if (stop.stop_requested()) return false;
    }
    const Post post(target_, body, options_.try_budget);
    if (post.code() >= 200 && post.code() < 300) {
      problem_logged_ = false;
      return true;
    }
    why = post.code() == 0 ? post.error() : absl::StrCat("it answers ", post.code());
    if (!is_worth_repeating(post.code())) break;
  }
  if (!std::exchange(problem_logged_, true)) {
    spdlog::warn("stack traces for {}:{} are dropped: {}", target_.host, target_.port,
                 printable(why, kTroubleBytesMax));
  }
  return false;
}

}  // namespace muster::worker
