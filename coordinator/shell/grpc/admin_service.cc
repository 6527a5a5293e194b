#include "coordinator/shell/grpc/admin_service.h"

#include <sys/resource.h>

#include <filesystem>
#include <system_error>

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "coordinator/shell/grpc/backup_stream.h"
#include "coordinator/shell/grpc/unary_call.h"
#include "coordinator/shell/metrics/process_metrics.h"
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

}  // namespace

AdminService::~AdminService() {
  const std::lock_guard lock(mutex_);
  if (copier_.joinable()) copier_.join();
}

grpc::ServerWriteReactor<v1::BackupChunk>* AdminService::BackupState(
    grpc::CallbackServerContext* context, const v1::BackupStateRequest*) {
  const bool is_free = !copying_->exchange(true);
  const std::shared_ptr<void> ticket(nullptr, [copying = copying_, is_free](void*) {
    if (is_free) *copying = false;
  });
  const auto stream = std::make_shared<BackupStream>(metrics_, ticket);
  stream->begin();
  if (!is_free) {
    stream->send(
        absl::ResourceExhaustedError("another copy of the state is in progress: try again later"));
    return stream.get();
  }
  spdlog::info("the state is copied for a backup of {}", context->peer());
  const std::lock_guard lock(mutex_);
  if (copier_.joinable()) copier_.join();  // its stream has ended
  try {
    copier_ = std::thread(
        [stream, state_dir = facts_.state_dir] { stream->send(StateBackup::make(state_dir)); });
  } catch (const std::system_error& error) {
    stream->send(absl::ResourceExhaustedError(
        absl::StrCat("no thread can be started for the copy: ", error.what())));
  }
  return stream.get();
}

grpc::ServerUnaryReactor* AdminService::GetCoordinator(grpc::CallbackServerContext* context,
                                                       const v1::GetCoordinatorRequest*,
                                                       v1::Coordinator* response) {
  const UnaryCall call(*context, *metrics_, "GetCoordinator");
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
