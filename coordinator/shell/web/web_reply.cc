#include "coordinator/shell/web/web_reply.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace muster::coordinator {

std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

daemon::HttpResponse json_response(const nlohmann::json& value) {
  return {.content_type = kJsonType, .body = json_text(value) + "\n"};
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

daemon::HttpResponse error_response(int http_status, const absl::Status& status) {
  return {.status = http_status,
          .content_type = kJsonType,
          .body = json_text({{"error",
                              {{"code", absl::StatusCodeToString(status.code())},
                               {"message", std::string(status.message())}}}}) +
                  "\n"};
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
