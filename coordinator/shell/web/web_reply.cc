#include "coordinator/shell/web/web_reply.h"

#include <algorithm>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "coordinator/shell/web/gzip.h"

namespace muster::coordinator {

std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

daemon::HttpResponse json_response(const nlohmann::json& value, bool takes_gzip) {
  daemon::HttpResponse response{.content_type = kJsonType, .body = json_text(value) + "\n"};
  if (!takes_gzip || response.body.size() < kGzipBytesMin) return response;
  std::string compressed = gzipped(response.body, GzipLevel::kFastest);
  if (compressed.empty()) return response;
  response.body = std::move(compressed);
  response.headers = {{"Content-Encoding", "gzip"}, {"Vary", "Accept-Encoding"}};
  return response;
}

bool takes_gzip(const daemon::HttpRequest& request) {
  return absl::StrContains(av(request.header("accept-encoding")), "gzip");
}

int http_status_of(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return 503;
    default:
      return 500;
  }
}

absl::StatusCode code_of_http_status(int status) {
  if (status < 400) return absl::StatusCode::kOk;
  switch (status) {
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 409:
      return absl::StatusCode::kFailedPrecondition;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    case 503:
      return absl::StatusCode::kUnavailable;
    default:
      return status < 500 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal;
  }
}

daemon::HttpResponse error_response(int http_status, const absl::Status& status) {
  return {.status = http_status,
          .content_type = kJsonType,
          .body = json_text({{"error",
                              {{"code", absl::StatusCodeToString(status.code())},
                               {"message", std::string(status.message())}}}}) +
                  "\n"};
}

std::string error_message(const daemon::HttpResponse& response) {
  if (response.status < 400) return "";
  const auto body = nlohmann::json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  const auto message = nlohmann::json::json_pointer("/error/message");
  return body.contains(message) ? body.at(message).get<std::string>() : "";
}

daemon::HttpResponse error_response(const absl::Status& status, Duration retry_after) {
  daemon::HttpResponse response = error_response(http_status_of(status.code()), status);
  if (response.status == 429 || response.status == 503) {
    const auto seconds = std::max<int64_t>(retry_after / std::chrono::seconds(1), 1);
    response.headers.emplace_back("Retry-After", absl::StrCat(seconds));
  }
  return response;
}

}  // namespace muster::coordinator
