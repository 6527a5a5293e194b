#include "coordinator/shell/grpc/admin_service.h"

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "coordinator/shell/grpc/unary_call.h"
#include "coordinator/shell/metrics/process_metrics.h"
#include "coordinator/shell/profiling/profiler.h"
#include "coordinator/shell/storage/state_backup.h"
#include "daemon/trust_files.h"

namespace muster::coordinator {
namespace {

void describe_certificate(const std::string& path, v1::ServerCertificate& proto) {
  proto.set_path(path);
  const auto pem = daemon::read_certificates("--tls-cert", path);
  const auto validity =
      pem.ok() ? daemon::certificate_validity("--tls-cert", path, *pem) : pem.status();
  if (!validity.ok()) return proto.set_problem(std::string(validity.status().message()));
  proto.set_not_before_unix_s(validity->not_before_unix_s);
  proto.set_not_after_unix_s(validity->not_after_unix_s);
}

absl::StatusOr<SentFile> copy_of_state(const std::string& state_dir, const std::stop_token& stop) {
  auto made = StateBackup::make(state_dir, stop);
  if (!made.ok()) return made.status();
  const auto backup = std::make_shared<StateBackup>(*std::move(made));
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(backup->path(), error);
  auto bytes = std::make_unique<std::ifstream>(backup->path(), std::ios::binary);
  const std::string name = absl::StrCat("the copy of the state, ", backup->path(), ",");
  if (error || !*bytes) return absl::InternalError(absl::StrCat(name, " cannot be read"));
  return SentFile{.name = name, .owner = backup, .bytes = std::move(bytes), .size = size};
}

absl::StatusOr<std::string> take_profile(const v1::TakeProfileRequest& request,
                                         const std::stop_token& stop) {
  switch (request.kind()) {
    case v1::PROFILE_KIND_HEAP:
      return heap_profile();
    case v1::PROFILE_KIND_CPU: {
      const double least = to_seconds(kProfileTimeMin);
      const double most = to_seconds(kProfileTimeMax);
      // Also false for a value that is no number.
      if (!(request.seconds() >= least && request.seconds() <= most)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "seconds is ", request.seconds(), ": it must be between ", least, " and ", most));
      }
      const std::chrono::duration<double> time(request.seconds());
      return cpu_profile(std::chrono::duration_cast<Duration>(time), stop);
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("kind is ", request.kind(),
                       ": it must be PROFILE_KIND_CPU (1) or PROFILE_KIND_HEAP (2)"));
  }
}

absl::StatusOr<SentFile> profile_of_process(const v1::TakeProfileRequest& request,
                                            const std::string& peer, const std::stop_token& stop) {
  spdlog::info("{} requests a profile: kind {}, {} s", peer, static_cast<int>(request.kind()),
               request.seconds());
  auto profile = take_profile(request, stop);
  if (!profile.ok()) return profile.status();
  const uint64_t size = profile->size();
  return SentFile{.name = "the profile",
                  .owner = nullptr,
                  .bytes = std::make_unique<std::istringstream>(*std::move(profile)),
                  .size = size};
}

}  // namespace

grpc::ServerWriteReactor<v1::FileChunk>* AdminService::BackupState(
    grpc::CallbackServerContext* context, const v1::BackupStateRequest*) {
  return copies_.answer(
      callers_.audit(*context, "BackupState", "", /*is_change=*/true),
      [state_dir = facts_.state_dir, peer = context->peer()](const std::stop_token& stop) {
        spdlog::info("the state is copied for a backup of {}", peer);
        return copy_of_state(state_dir, stop);
      });
}

grpc::ServerWriteReactor<v1::FileChunk>* AdminService::TakeProfile(
    grpc::CallbackServerContext* context, const v1::TakeProfileRequest* request) {
  return profiles_.answer(
      callers_.audit(*context, "TakeProfile", "", /*is_change=*/true),
      [request = *request, peer = context->peer()](const std::stop_token& stop) {
        return profile_of_process(request, peer, stop);
      });
}

grpc::ServerUnaryReactor* AdminService::GetCoordinator(grpc::CallbackServerContext* context,
                                                       const v1::GetCoordinatorRequest*,
                                                       v1::Coordinator* response) {
  const UnaryCall call(*context, *metrics_, "GetCoordinator", Audit());
  response->set_version(facts_.version);
  response->set_epoch(facts_.epoch.value());
  response->set_state_dir(facts_.state_dir);
  response->set_unix_ns(wall_clock_unix_ns());
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(facts_.state_dir, error);
  if (!error) {
    response->set_disk_bytes(space.capacity);
    response->set_disk_free_bytes(space.available);
  }
  response->set_state_bytes(state_bytes(facts_.state_dir));
  response->set_open_fds(open_descriptors().value_or(0));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
    response->set_max_fds(static_cast<int64_t>(limit.rlim_cur));
  const LoopLoad load = loop_.load(monotonic_now());
  response->set_queued_events(static_cast<int64_t>(load.queued));
  response->set_oldest_event_age_ns(load.oldest_event_age.count());
  response->set_decides(load.decides);
  if (!facts_.tls_cert.empty())
    describe_certificate(facts_.tls_cert, *response->mutable_certificate());
  call.finish(absl::OkStatus());
  return call.reactor();
}

}  // namespace muster::coordinator
