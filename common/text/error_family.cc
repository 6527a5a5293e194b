#include "common/text/error_family.h"

#include <algorithm>
#include <string>

#include <absl/strings/ascii.h>

#include "common/text/absl_view.h"

namespace muster {
namespace {

using enum ErrorOrigin;
using Patterns = std::string_view[];

// The texts are those of the CUDA runtime and driver (cudaGetErrorString, CUresult), cuBLAS, cuDNN,
// NVML, NCCL (ncclGetErrorString and its warnings), PyTorch (c10, ProcessGroupNCCL, TCPStore,
// DataLoader), Gloo, XLA and JAX's coordination service, NVIDIA's catalogue of Xids, glibc, ld.so,
// Python's exceptions, Linux' errno and kernel log, Lustre, and Amazon S3's error codes.
constexpr Patterns kGpuLost = {"fallen off the bus", "gpu is lost", "xid*): 61,",  "xid*): 62,",
                               "xid*): 79,",         "xid*): 119,", "xid*): 120,", "gpuislost"};
constexpr Patterns kGpuMemory = {"uncorrectable ecc error",
                                 "ecc_uncorrectable",
                                 "eccuncorrectable",
                                 "double bit ecc",
                                 "xid*): 48,",
                                 "xid*): 64,",
                                 "xid*): 95,",
                                 "xid*): 140,"};
constexpr Patterns kLinkLost = {"nic link is down", "mlx*link down", "async event*port error",
                                "ib_event_port_err"};
constexpr Patterns kGpuLink = {"xid*): 74,", "uncorrectable nvlink", "nvlink_uncorrectable",
                               "nvlink*fatal error", "nvswitch*fatal"};
constexpr Patterns kGpuUnusable = {"system not yet initialized",
                                   "system_not_ready",
                                   "systemnotready",
                                   "no cuda gpus are available",
                                   "no cuda-capable device",
                                   "cuda_error_no_device",
                                   "driver/library version mismatch",
                                   "busy or unavailable",
                                   "devicesunavailable",
                                   "found no nvidia driver",
                                   "driver version is insufficient",
                                   "unable to determine the device handle",
                                   "invalid device ordinal",
                                   "forward compatibility was attempted",
                                   "nvml: unknown error"};
constexpr Patterns kAdapter = {"ibv_*no such device",    "ibv_reg_*cannot allocate memory",
                               "ibv_create_*failed",     "ibv_open_device*failed",
                               "ibv_*permission denied", "mlx5*health compromised"};
constexpr Patterns kDiskFailed = {"read-only file system",    "read-only filesystem",
                                  "filesystem read-only",     "input/output error",
                                  "i/o error, dev",           "buffer i/o error",
                                  "structure needs cleaning", "ext4-fs error",
                                  "xfs*corruption",           "aborting journal"};
constexpr Patterns kMountFailed = {"transport endpoint is not connected"};
constexpr Patterns kDeviceAssert = {"device-side assert", "block:*thread:*assertion*failed"};
constexpr Patterns kDeviceMemory = {"cuda out of memory",
                                    "hip out of memory",
                                    "cuda error: out of memory",
                                    "cuda_error_out_of_memory",
                                    "resource_exhausted*out of memory",
                                    "cuda failure*out of memory",
                                    "failed to cuda*alloc",
                                    "cublas_status_alloc_failed",
                                    "outofmemoryerror"};
constexpr Patterns kGpuKernel = {"illegal memory access",
                                 "illegaladdress",
                                 "illegal_address",
                                 "unspecified launch failure",
                                 "launch_failed",
                                 "misaligned address",
                                 "cublas_status_",
                                 "cudnn_status_",
                                 "cudnn error",
                                 "cublas",
                                 "cudnn",
                                 "cuda error",
                                 "cuda runtime error",
                                 "cuda failure",
                                 "cuda_error_",
                                 "xid*): 13,",
                                 "xid*): 31,",
                                 "xid*): 43,"};
constexpr Patterns kLibrary = {
    "modulenotfounderror", "importerror",       "no module named", "cannot open shared object file",
    "glibc*not found",     "glibcxx*not found", "undefined symbol"};
constexpr Patterns kNcclMisused = {"ncclinvalidusage", "nccl error*invalid usage",
                                   "duplicate gpu detected"};
constexpr Patterns kPortInUse = {"address already in use", "eaddrinuse"};
constexpr Patterns kRendezvous = {"client socket has timed out",
                                  "waiting for clients",
                                  "clients joined",
                                  "pjrt_client_connect",
                                  "rendezvousconnectionerror",
                                  "rendezvoustimeouterror",
                                  "connection to the c10d store has failed"};
constexpr Patterns kLostPeer = {"connection closed by peer",
                                "connection closed by remote peer",
                                "connection reset by peer",
                                "connection was likely closed",
                                "broken pipe",
                                "brokenpipeerror",
                                "connectionreseterror",
                                "socket closed",
                                "preamble.length",
                                "op.preamble",
                                "preamble mismatch",
                                "timed out waiting",
                                "application timeout caused pair closure",
                                "pair closure",
                                "gloo all-reduce failed",
                                "gloo allreduce failed",
                                "distbackenderror",
                                "distnetworkerror",
                                "diststoreerror",
                                "ncclremoteerror",
                                "remote process exit",
                                "network error or a remote process",
                                "watchdog caught collective operation timeout",
                                "watchdog thread terminated",
                                "nccl operations have failed or timed out",
                                "nccl communicator was aborted",
                                "nccl communicator encountered error",
                                "call to recv from",
                                "got completion from peer*status",
                                "got completion from peer*error",
                                "failed to recv, got 0 bytes",
                                "recvvalue failed",
                                "sendbytes failed",
                                "recvbytes failed",
                                "tcpstore server has shut down",
                                "remote server shutdown",
                                "monitoredbarrier",
                                "detected mismatch between collectives",
                                "jax distributed service detected",
                                "coordination service",
                                "stopped sending heartbeats",
                                "heartbeat timeout",
                                "barrier timed out"};
constexpr Patterns kSharedMemory = {"out of shared memory", "insufficient shared memory",
                                    "shared memory limit", "unable to open shared memory",
                                    "needs --shm-size"};
constexpr Patterns kHostMemory = {"bad_alloc",
                                  "memoryerror",
                                  "_arraymemoryerror",
                                  "cannot allocate memory",
                                  "killed by signal: killed",
                                  "out of memory"};
constexpr Patterns kDiskFull = {"no space left", "disk quota exceeded", "limit of sizes (ulimit"};
constexpr Patterns kNetworkFiles = {"stale file handle", "stale nfs", "transport endpoint shutdown",
                                    "nfs: server*not responding", "lustreerror"};
constexpr Patterns kPermission = {"permissionerror",        "permission denied",  "accessdenied",
                                  "access denied",          "403 client error",   "403 forbidden",
                                  "401 client error",       "invalidaccesskeyid", "expiredtoken",
                                  "operation not permitted"};
constexpr Patterns kFileMissing = {"filenotfounderror", "no such file or directory"};
constexpr Patterns kNames = {"failure in name resolution", "name or service", "gaierror",
                             "temporary failure"};
constexpr Patterns kStorage = {"slowdown",
                               "503 server error",
                               "503 service",
                               "503 slow",
                               "502 server error",
                               "504 server error",
                               "500 server error",
                               "bad gateway",
                               "gateway timeout",
                               "error 503",
                               "status 503",
                               "http 503",
                               "code: 503",
                               "service unavailable",
                               "too many requests",
                               "max retries exceeded",
                               "could not connect to the endpoint",
                               "endpointconnectionerror",
                               "readtimeouterror",
                               "internalerror) when calling",
                               "requesttimeout"};
constexpr Patterns kUnreachable = {"connectionrefused", "connection refused",
                                   "connectionerror",   "network is unreachable",
                                   "no route to host",  "nccl error"};
constexpr Patterns kIllegalInstruction = {"illegal instruction", "sigill"};
constexpr Patterns kBusError = {"bus error"};
constexpr Patterns kCrash = {"segmentation fault",      "double free",       "corrupted size",
                             "corrupted double-linked", "memory corruption", "stack smashing",
                             "invalid pointer",         "invalid size"};
constexpr Patterns kDamagedFile = {"unpicklingerror",
                                   "ran out of input",
                                   "pytorchstreamreader",
                                   "safetensorerror",
                                   "deserializing header",
                                   "unidentifiedimageerror",
                                   "jsondecodeerror",
                                   "unicodedecodeerror",
                                   "zlib.error",
                                   "lzmaerror",
                                   "zstderror",
                                   "badzipfile",
                                   "badgzipfile",
                                   "arrowinvalid",
                                   "magic bytes not found",
                                   "checksum mismatch",
                                   "crc mismatch",
                                   "eoferror"};
constexpr Patterns kNotFinite = {
    "loss is nan", "loss is inf",  "nan loss",  "loss scale reached", "floatingpointerror",
    "non-finite",  "contains nan", "found nan", "nan detected",       "nan or inf"};
constexpr Patterns kTimeout = {"timeout", "timed out"};
constexpr Patterns kOtherInput = {"oserror", "ioerror"};
constexpr Patterns kArguments = {"unrecognized arguments", "the following arguments are required",
                                 "error: argument", "invalid choice"};
constexpr Patterns kAssertion = {"assertion `*failed", "assertion '*failed", "check failed"};
constexpr Patterns kProgramError = {"arithmeticerror",
                                    "assertionerror",
                                    "attributeerror",
                                    "indentationerror",
                                    "indexerror",
                                    "keyerror",
                                    "nameerror",
                                    "notimplementederror",
                                    "overflowerror",
                                    "recursionerror",
                                    "syntaxerror",
                                    "typeerror",
                                    "unboundlocalerror",
                                    "valueerror",
                                    "zerodivisionerror",
                                    "shapes cannot be multiplied",
                                    "expected all tensors to be on the same device",
                                    "size mismatch",
                                    "size of tensor a",
                                    "must match the size",
                                    "expected scalar type",
                                    "error(s) in loading state_dict",
                                    "modified by an inplace operation",
                                    "does not require grad"};

constexpr ErrorFamily kFamilies[] = {
    {"GPU lost", kNode, "The GPU or its driver stopped to answer; it needs a reset or a repair.",
     kGpuLost},
    {"GPU memory error", kNode, "The GPU's memory has an error that its ECC cannot correct.",
     kGpuMemory},
    {"GPU link failed", kNode, "An NVLink of the GPU failed.", kGpuLink},
    {"GPU unusable", kSetup,
     "The node's GPUs cannot be used: driver, fabric manager, or another process on them.",
     kGpuUnusable},
    {kNetworkLinkLost, kNode, "A network device of the node has lost its link.", kLinkLost},
    {"network adapter failed", kSetup,
     "The node's InfiniBand or RoCE adapter cannot be used: it is gone, or locked memory is "
     "limited.",
     kAdapter},
    {"disk failed", kNode, "A disk or local file system of the node failed.", kDiskFailed},
    {"mount failed", kNode, "A mounted file system of the node has lost its server process.",
     kMountFailed},
    {"device assertion", kProgram,
     "A GPU kernel found an index or a value out of its range, for example a label.",
     kDeviceAssert},
    {"device memory exhausted", kPassing, "The GPU has not enough free memory.", kDeviceMemory},
    {"library missing", kSetup, "A library or a Python module is missing or does not fit.",
     kLibrary},
    {"GPU kernel failed", kPassing,
     "A GPU kernel failed. The program, a library or the GPU may be the cause.", kGpuKernel},
    {"NCCL misused", kProgram, "The ranks use NCCL wrongly, for example two ranks the same GPU.",
     kNcclMisused},
    {"port in use", kPassing, "Another process listens on the port.", kPortInUse},
    {"rendezvous failed", kPeer, "Not all ranks came to the rendezvous; another one is missing.",
     kRendezvous},
    {"lost peer", kPeer, "Another rank or its connection was lost; this rank is a witness.",
     kLostPeer},
    {"shared memory exhausted", kPassing, "/dev/shm is full; loaders of data need it.",
     kSharedMemory},
    {"host memory exhausted", kPassing, "The node or the control group has not enough memory.",
     kHostMemory},
    {"disk full", kPassing, "A disk or a quota is full.", kDiskFull},
    {"network file system", kPassing,
     "A network file system has dropped this client's handle; a new process opens the file again.",
     kNetworkFiles},
    {"permission denied", kSetup, "A file, a device or a service refuses the access.", kPermission},
    {"file missing", kSetup, "A file does not exist, or its file system is not mounted.",
     kFileMissing},
    {"name resolution", kPassing, "A host name could not be resolved.", kNames},
    {"storage service", kPassing, "A remote service does not answer, or refuses so many requests.",
     kStorage},
    {"connection refused", kPassing, "No process listens at the address, or no route leads there.",
     kUnreachable},
    {"illegal instruction", kSetup, "The program was built for another CPU than the node's.",
     kIllegalInstruction},
    {"bus error", kPassing,
     "A mapped page could not be read: the file shrank, its disk failed, or /dev/shm is full.",
     kBusError},
    {"crash", kPassing, "The program or a library damaged its own memory.", kCrash},
    {"damaged file", kData, "A data file or a checkpoint is damaged or incomplete.", kDamagedFile},
    {"not finite", kProgram, "The loss or a gradient is NaN or infinite.", kNotFinite},
    {"timeout", kPassing, "A call took too long.", kTimeout},
    {"input or output failed", kPassing, "A system call failed.", kOtherInput},
    {"wrong arguments", kProgram, "The program does not accept its arguments.", kArguments},
    {"failed assertion", kProgram, "An assertion of the program or of a library failed.",
     kAssertion},
    {"program error", kProgram, "The program raised an exception about its own code or data.",
     kProgramError},
};

bool is_of_word(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Returns whether the pattern is the name of an exception, such as "keyerror", or begins with a
// number, such as "403 forbidden". Within longer words they mean something else.
bool is_whole_word(std::string_view pattern) {
  const bool is_number = absl::ascii_isdigit(static_cast<unsigned char>(pattern[0]));
  return is_number || (pattern.ends_with("error") && std::ranges::all_of(pattern, is_of_word));
}

bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool is_begin = at == 0 || !is_of_word(text[at - 1]);
    if (is_begin && (end == text.size() || !is_of_word(text[end]))) return true;
  }
  return false;
}

// Returns the family of the exception with whose type a message in lower case begins, such as
// "json.decoder.jsondecodeerror: …"; null: it begins with none, the type is that of many errors
// (OSError) or of a consequence, or the message has the cause of the exception behind it.
const ErrorFamily* family_of_type(std::string_view text) {
  if (text.find("; after ") != std::string_view::npos ||
      text.find("; the kernel ") != std::string_view::npos)
    return nullptr;
  const std::string_view type = text.substr(0, std::min(text.find(": "), text.find(" (")));
  if (!std::ranges::all_of(type, [](char c) { return is_of_word(c) || c == '.'; })) return nullptr;
  const std::string_view name = type.substr(type.rfind('.') + 1);
  if (!name.ends_with("error")) return nullptr;
  for (const ErrorFamily& family : kFamilies) {
    if (std::ranges::find(family.patterns, name) == family.patterns.end()) continue;
    const bool decides =
        family.origin == kProgram || family.origin == kData || family.origin == kSetup;
    return decides ? &family : nullptr;
  }
  return nullptr;
}

}  // namespace

std::span<const ErrorFamily> error_families() { return kFamilies; }

const ErrorFamily* find_error_family(std::string_view text) {
  const std::string lower = absl::AsciiStrToLower(av(text));
  const auto* const found = std::ranges::find_if(kFamilies, [&](const ErrorFamily& family) {
    return std::ranges::any_of(
        family.patterns, [&](std::string_view pattern) { return matches_pattern(lower, pattern); });
  });
  const ErrorFamily* of_text = found == std::end(kFamilies) ? nullptr : found;
  const ErrorFamily* of_type = family_of_type(lower);
  if (of_type == nullptr || of_text == nullptr) return of_text;
  // The message may name the error of the program or its data more closely than its type.
  const bool is_closer =
      of_type->origin == kProgram && (of_text->origin == kProgram || of_text->origin == kData);
  return is_closer ? of_text : of_type;
}

const ErrorFamily* error_family_named(std::string_view name) {
  const auto* const found = std::ranges::find(kFamilies, name, &ErrorFamily::name);
  return found == std::end(kFamilies) ? nullptr : found;
}

bool matches_pattern(std::string_view text, std::string_view pattern) {
  if (is_whole_word(pattern)) return has_word(text, pattern);
  size_t at = 0;
  while (true) {
    const size_t star = pattern.find('*');
    const std::string_view piece = pattern.substr(0, star);
    const size_t found = text.find(piece, at);
    if (found == std::string_view::npos) return false;
    if (star == std::string_view::npos) return true;
    at = found + piece.size();
    pattern.remove_prefix(star + 1);
  }
}

}  // namespace muster
