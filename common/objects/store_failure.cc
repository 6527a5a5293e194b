#include "common/objects/store_failure.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/objects/rclone_output.h"
#include "common/text/has_any.h"

namespace muster::store {
namespace {

namespace fs = std::filesystem;

// rclone's exit codes (https://rclone.org/docs/#exit-code).
constexpr int kNoDirectory = 3, kNoFile = 4;

// Returns the endpoint that the variables name; nullopt: none does.
std::optional<std::string> named_s3_endpoint() {
  auto endpoint = first_variable({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "RCLONE_S3_ENDPOINT"});
  if (endpoint) endpoint = without_user(*endpoint);
  return endpoint;
}

std::string s3_endpoint() {
  return named_s3_endpoint().value_or("Amazon's (AWS_ENDPOINT_URL is not set)");
}

std::string file_state(const std::string& path) {
  std::error_code error;
  return absl::StrCat(path, fs::exists(path, error) ? "" : " (missing)");
}

std::string home_file(const char* overriding, const char* name) {
  if (auto path = variable(overriding)) return absl::StrCat(overriding, "=", file_state(*path));
  return file_state(absl::StrCat(variable("HOME").value_or("~"), "/", name));
}

// The places of credentials, and which of them are set: names and never values.
std::string places_of_credentials(const std::string& scheme) {
  if (scheme == "gs") {
    return absl::StrCat(
        "searched: ",
        home_file("GOOGLE_APPLICATION_CREDENTIALS",
                  ".config/gcloud/application_default_credentials.json"),
        ", the instance's service account; `gcloud auth application-default login` makes them");
  }
  std::vector<std::string> variables;
  for (const char* name :
       {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"})
    variables.push_back(absl::StrCat(name, variable(name) ? " (set)" : " (not set)"));
  return absl::StrCat("searched: ", absl::StrJoin(variables, ", "), ", ",
                      home_file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
                      ", the instance's role; the store is ", s3_endpoint());
}

absl::Status no_bucket(const ObjectUrl& url) {
  return absl::NotFoundError(absl::StrCat(
      "there is no bucket ", url.scheme, "://", url.bucket, " that these credentials can see",
      url.scheme == "s3" ? absl::StrCat("; the store is ", s3_endpoint()) : ""));
}

}  // namespace

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || value[0] == '\0') return std::nullopt;
  return value;
}

std::optional<std::string> first_variable(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = variable(name)) return value;
  }
  return std::nullopt;
}

std::string endpoint_of(const ObjectUrl& url) {
  if (url.scheme == "gs")
    return without_user(first_variable({"STORAGE_EMULATOR_HOST", "RCLONE_GCS_ENDPOINT"})
                            .value_or("Google Cloud Storage"));
  return named_s3_endpoint().value_or("Amazon S3");
}

std::string way_out(const ObjectUrl& url) {
  return absl::StrCat(
      "; check ", url.scheme == "gs" ? "" : "AWS_ENDPOINT_URL, ",
      "the network of this machine and HTTPS_PROXY; MUSTER_STORE_WAIT_SECONDS=N waits longer");
}

absl::Status missing_tool(const std::string& url) {
  return absl::FailedPreconditionError(absl::StrCat(
      url, " is in an object store, which needs the program ", kTool,
      "; it is not in PATH. Install it (sudo apt-get install rclone; deploy/install-deps.sh and "
      "Muster's image have it; https://rclone.org/install), or copy the data to a folder"));
}

absl::Status status_of(const ObjectUrl& url, const ChildEnd& end) {
  const std::string& text = end.errors;
  const std::string cause = rclone::cause_of(text);
  const std::string name = url.text();
  if (has_any(text, {"no space left on device", "disk quota exceeded"}))
    return absl::ResourceExhaustedError(absl::StrCat(name, ": ", cause));
  if (has_any(text, {"NoSuchBucket", "bucket does not exist", "bucket doesn't exist"}))
    return no_bucket(url);
  if (has_any(text, {"InvalidBucketName"}))
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", cause));
  if (has_any(text, {"AccessDenied", "Access Denied", "InvalidAccessKeyId", "SignatureDoesNotMatch",
                     "ExpiredToken", "InvalidToken", "NoCredentialProviders", "Forbidden",
                     "status code: 403", "StatusCode: 403", "status code: 401", "Error 401",
                     "Error 403", "could not find default credentials", "invalid_grant",
                     "Unauthorized", "failed to configure Google Cloud Storage"})) {
    return absl::PermissionDeniedError(absl::StrCat(name, ": the store refuses access (", cause,
                                                    "); ", places_of_credentials(url.scheme)));
  }
  // A prefix without objects is no error, so that only the bucket can be missing.
  if (end.exit_code == kNoDirectory) return no_bucket(url);
  if (end.exit_code == kNoFile || has_any(text, {"is a directory or doesn't exist"}))
    return absl::NotFoundError(absl::StrCat("there is no object ", name));
  if (const std::string why = rclone::why_unreachable(text); !why.empty()) {
    return absl::UnknownError(
        absl::StrCat(name, ": ", endpoint_of(url), " cannot be reached (", why, ")"));
  }
  if (has_any(text, {"unknown flag"})) {
    return absl::FailedPreconditionError(absl::StrCat(name, ": ", kTool, " is too old (", cause,
                                                      "); install version 1.53 or later"));
  }
  return absl::UnknownError(absl::StrCat(
      name, ": ",
      cause.empty() ? absl::StrCat(kTool, " ended with exit code ", end.exit_code) : cause));
}

}  // namespace muster::store
