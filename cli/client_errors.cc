// Errors of calls, as sentences for users.
#include <string>

#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>

#include "cli/client.h"

namespace muster::cli {
namespace {

// Returns the end of gRPC's message about a lost connection, which has the cause: "… last error:
// UNKNOWN: …: Connection refused".
std::string cause(const std::string& message) {
  const size_t colon = message.rfind(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

// Returns what to try when the coordinator does not answer.
const char* advice(const std::string& message, const daemon::ClientTrust& trust) {
  if (message.find("certificate") != std::string::npos)
    return "check that --tls-ca has the CA of its certificate, and that the certificate names this "
           "address";
  const bool is_there = message.find("refused") == std::string::npos;
  if (trust.has_tls() && is_there)
    return "check that it serves TLS and accepts the certificate of --tls-cert";
  if (is_there && message.find("Socket closed") != std::string::npos)
    return "if it serves TLS, give --tls-ca";
  return "start muster-coordinator, or name another address with --coordinator";
}

}  // namespace

absl::Status Client::translate(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(absl::StrCat("no coordinator answers at ", coordinator_.address,
                                               " (", cause(status.error_message()), "); ",
                                               advice(status.error_message(), coordinator_.trust)));
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(
        absl::StrCat("the coordinator at ", coordinator_.address, " did not answer in time"));
  }
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::UnimplementedError(absl::StrCat("the coordinator at ", coordinator_.address,
                                                 " is older than this command: update it"));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace muster::cli
