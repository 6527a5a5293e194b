#include "coordinator/shell/grpc/call_guard.h"

#include <array>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "coordinator/shell/grpc/grpc_status.h"

namespace muster::coordinator {
namespace {

constexpr std::string_view kHealth = "/grpc.health.v1.Health/";
constexpr std::string_view kReflection = "/grpc.reflection.";
constexpr std::string_view kFleet = "/muster.v1.Fleet/";
constexpr std::string_view kMuster = "/muster.v1.Muster/";
constexpr std::string_view kAdmin = "/muster.v1.Admin/";
constexpr size_t kMethodShown = 128;

constexpr std::array<std::pair<std::string_view, Role>, 19> kMethods = {{
    {"ListJobs", Role::kViewer},     {"GetJob", Role::kViewer},
    {"WatchJob", Role::kViewer},     {"FollowLogs", Role::kViewer},
    {"ListWorkers", Role::kViewer},  {"GetJobHistory", Role::kViewer},
    {"GetNodeSweep", Role::kViewer}, {"ListNodeChecks", Role::kViewer},
    {"ListShares", Role::kViewer},   {"ListIncidents", Role::kViewer},
    {"GetIncident", Role::kViewer},  {"SubmitJob", Role::kSubmitter},
    {"CancelJob", Role::kSubmitter}, {"CheckpointJob", Role::kSubmitter},
    {"UpdateJob", Role::kSubmitter}, {"DumpJobStacks", Role::kSubmitter},
    {"ExcludeWorker", Role::kAdmin}, {"AdmitWorker", Role::kAdmin},
    {"CheckNodes", Role::kAdmin},
}};

// Returns "" if there is no value, or more than one.
std::string_view value_of(const grpc::AuthMetadataProcessor::InputMetadata& metadata,
                          std::string_view key) {
  const auto [first, end] = metadata.equal_range({key.data(), key.size()});
  if (first == end || std::next(first) != end) return {};
  return {first->second.data(), first->second.size()};
}

}  // namespace

std::optional<Role> role_needed(std::string_view method) {
  if (method.starts_with(kHealth)) return std::nullopt;
  if (method.starts_with(kReflection)) return Role::kViewer;
  if (method.starts_with(kFleet)) return Role::kWorker;
  if (method.starts_with(kMuster)) {
    method.remove_prefix(kMuster.size());
    for (const auto& [name, role] : kMethods)
      if (name == method) return role;
  }
  return Role::kAdmin;
}

std::string_view bearer_token(const grpc::AuthMetadataProcessor::InputMetadata& metadata) {
  const std::string_view value = value_of(metadata, "authorization");
  return value.starts_with(kBearer) ? value.substr(kBearer.size()) : std::string_view();
}

std::string_view method_label(std::string_view method) {
  if (method == "/muster.v1.Fleet/Connect") return "Connect";
  if (method.starts_with(kAdmin)) {
    method.remove_prefix(kAdmin.size());
    for (const char* name : {"BackupState", "TakeProfile", "GetCoordinator"})
      if (name == method) return name;
  }
  if (method.starts_with(kMuster)) {
    method.remove_prefix(kMuster.size());
    for (const auto& [name, role] : kMethods)
      if (name == method) return name;
  }
  return "other";
}

bool may(Role role, Role needed) {
  if (role == Role::kWorker || needed == Role::kWorker) return role == needed;
  return role >= needed;
}

// The token stays in the metadata, where handlers find it (callers.h).
grpc::Status CallGuard::Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata*,
                                OutputMetadata*) {
  const std::string_view method = value_of(metadata, ":path");
  const std::optional<Role> needed = role_needed(method);
  if (!needed) return grpc::Status::OK;
  const std::string_view token = bearer_token(metadata);
  if (token.empty())
    return refuse(method, token, std::nullopt,
                  absl::UnauthenticatedError("this coordinator requires a token: give its file "
                                             "with --token-file"));
  const auto grant = tokens_->grant_of(token, monotonic_now());
  if (!grant.ok()) return refuse(method, token, std::nullopt, grant.status());
  if (may(grant->role, *needed)) return grpc::Status::OK;
  return refuse(method, token, *grant,
                absl::PermissionDeniedError(absl::StrCat(
                    printable(method, kMethodShown), " needs the role ", av(name_of(*needed)),
                    ", and this token's is ", av(name_of(grant->role)))));
}

// The line has no address, because gRPC does not pass it to this function.
grpc::Status CallGuard::refuse(std::string_view method, std::string_view token,
                               const std::optional<TokenGrant>& grant,
                               const absl::Status& why) const {
  if (metrics_ != nullptr) metrics_->count_rpc(method_label(method), why);
  AuditEntry entry{.method = std::string(method_label(method))};
  if (!token.empty()) entry.token = audit_token(daemon::token_digest(token));
  if (grant) {
    entry.role = std::string(name_of(grant->role));
    entry.caller = grant->caller.name;
  }
  Audit(log_, std::move(entry), /*is_change=*/false).finish(why);
  return to_grpc(why);
}

}  // namespace muster::coordinator
