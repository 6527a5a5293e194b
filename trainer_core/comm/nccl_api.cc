#include "trainer_core/comm/nccl_api.h"

#include <dlfcn.h>

#include <type_traits>

#include <absl/strings/str_cat.h>

namespace muster::trainer {

std::string nccl_version_text(int version) {
  return absl::StrCat(version / 10'000, ".", version / 100 % 100, ".", version % 100);
}

NcclConfig NcclConfig::of(int version) {
  NcclConfig config;
  if (version >= static_cast<int>(config.version)) return config;
  config.version = 21'400;
  // In that version the fields after `blocking` are padding.
  config.size = offsetof(NcclConfig, min_ctas);
  return config;
}

absl::StatusOr<std::shared_ptr<const NcclApi>> open_nccl(const char* name) {
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return absl::NotFoundError(absl::StrCat(name, " is not found here (", dlerror(), ")"));
  auto api = std::make_shared<NcclApi>();
  std::string missing;
  const auto get = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr && missing.empty()) missing = symbol;
  };
  get(api->version, "ncclGetVersion");
  get(api->error_text, "ncclGetErrorString");
  get(api->unique_id, "ncclGetUniqueId");
  get(api->init, "ncclCommInitRankConfig");
  get(api->async_error, "ncclCommGetAsyncError");
  get(api->finalize, "ncclCommFinalize");
  get(api->destroy, "ncclCommDestroy");
  get(api->abort, "ncclCommAbort");
  get(api->all_reduce, "ncclAllReduce");
  get(api->all_gather, "ncclAllGather");
  get(api->reduce_scatter, "ncclReduceScatter");
  get(api->broadcast, "ncclBroadcast");
  get(api->send, "ncclSend");
  get(api->recv, "ncclRecv");
  get(api->group_start, "ncclGroupStart");
  get(api->group_end, "ncclGroupEnd");
  if (missing.empty()) return std::shared_ptr<const NcclApi>(std::move(api));
  return absl::FailedPreconditionError(
      absl::StrCat(name, " has no ", missing, "; NCCL 2.14 or newer is needed"));
}

}  // namespace muster::trainer
