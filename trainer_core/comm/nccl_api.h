// The functions of NCCL that process groups call. The library is opened at run time; tests
// substitute another table of functions. Constants and layouts match nccl.h, which does not change
// them between versions.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace muster::trainer {

// ncclUniqueId: identifies a communicator that is being created.
struct NcclUniqueId {
  std::array<char, 128> bytes{};
};

using NcclCommunicator = void*;  // ncclComm_t
using NcclResult = int;          // ncclResult_t
constexpr NcclResult kNcclSuccess = 0;
constexpr NcclResult kNcclInProgress = 7;

// ncclConfig_t of NCCL 2.17, which later versions accept, too.
struct NcclConfig {
  static constexpr int kUndefined = std::numeric_limits<int>::min();

  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21'700;
  int blocking = 0;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;  // maximum number of thread blocks of a kernel
  const char* net_name = nullptr;

  // Returns a configuration that the library's `version` accepts. Version 2.14, the first with
  // nonblocking communicators, supports only the first fields.
  static NcclConfig of(int version);
};

// Values of ncclDataType_t and ncclRedOp_t.
constexpr int kNcclInt32 = 2, kNcclFloat32 = 7, kNcclBfloat16 = 9;
constexpr int kNcclSum = 0;

// The functions of a loaded library. Each has the parameters of the NCCL function of the same name.
struct NcclApi {
  NcclResult (*version)(int* version) = nullptr;
  const char* (*error_text)(NcclResult result) = nullptr;
  NcclResult (*unique_id)(NcclUniqueId* id) = nullptr;
  NcclResult (*init)(NcclCommunicator* communicator, int ranks, NcclUniqueId id, int rank,
                     NcclConfig* config) = nullptr;
  NcclResult (*async_error)(NcclCommunicator communicator, NcclResult* found) = nullptr;
  NcclResult (*finalize)(NcclCommunicator communicator) = nullptr;
  NcclResult (*destroy)(NcclCommunicator communicator) = nullptr;
  NcclResult (*abort)(NcclCommunicator communicator) = nullptr;
  NcclResult (*all_reduce)(const void* from, void* to, size_t count, int type, int reduction,
                           NcclCommunicator communicator, void* stream) = nullptr;
  NcclResult (*all_gather)(const void* from, void* to, size_t count, int type,
                           NcclCommunicator communicator, void* stream) = nullptr;
  NcclResult (*reduce_scatter)(const void* from, void* to, size_t count, int type, int reduction,
                               NcclCommunicator communicator, void* stream) = nullptr;
  NcclResult (*broadcast)(const void* from, void* to, size_t count, int type, int root,
                          NcclCommunicator communicator, void* stream) = nullptr;
  NcclResult (*send)(const void* from, size_t count, int type, int to,
                     NcclCommunicator communicator, void* stream) = nullptr;
  NcclResult (*recv)(void* to, size_t count, int type, int from, NcclCommunicator communicator,
                     void* stream) = nullptr;
  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;
};

// Formats NCCL's version number: "2.28.9".
std::string nccl_version_text(int version);

// Opens the library `name` through the system's loader. It remains open until the process ends.
// Returns NotFound if it does not exist, and FailedPrecondition if it is older than 2.14.
absl::StatusOr<std::shared_ptr<const NcclApi>> open_nccl(const char* name = "libnccl.so.2");

}  // namespace muster::trainer
