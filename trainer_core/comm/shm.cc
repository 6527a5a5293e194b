#include "trainer_core/comm/shm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>
#include <vector>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/errno_status.h"
#include "trainer_core/comm/desk_transport.h"

namespace muster::trainer {
namespace {

// A peer must not shrink memory that is mapped here: a read beyond its end would be SIGBUS.
constexpr unsigned kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Of each rank, in addresses: pages that nobody touches take no memory. As much as the machine has, and what all ranks together can map.
size_t heap_bytes(int ranks) {
  constexpr size_t kMappedMax = size_t{1} << 45;  // of the 2^47 bytes that a process can address
  const size_t machine =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return std::min(machine, kMappedMax / static_cast<size_t>(ranks)) / kHugePage * kHugePage;
}

// What the desks of a host lie in, and how their owners' deaths are known.
struct HostMemory {
  struct Peer {
    std::byte* desk = nullptr;
    Descriptor connection;  // none to oneself
  };

  explicit HostMemory(size_t bytes) : desk_bytes(bytes) {}
  ~HostMemory() {
    for (Peer& peer : peers) {
      if (peer.desk != nullptr) munmap(peer.desk, desk_bytes);
    }
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  size_t desk_bytes;
  std::vector<Peer> peers;  // in the order of ranks
};

absl::StatusOr<Descriptor> make_memory(size_t bytes) {
  rlimit files{};  // a memfd is one, and what goes beyond the limit is not an error but a signal
  if (getrlimit(RLIMIT_FSIZE, &files) != 0 || files.rlim_cur < bytes)
    return absl::ResourceExhaustedError(absl::StrCat(
        "files may have ", files.rlim_cur, " bytes (ulimit -f), and ", bytes, " are shared"));
  Descriptor fd(memfd_create("muster-desk", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return errno_status(errno, "memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return errno_status(errno, absl::StrCat("a memfd of ", bytes, " bytes"));
  }
  return fd;
}

absl::StatusOr<std::byte*> map_memory(const Descriptor& fd, size_t bytes) {
  struct stat status {};
  if (fstat(fd.get(), &status) != 0 || static_cast<size_t>(status.st_size) != bytes ||
      (static_cast<unsigned>(fcntl(fd.get(), F_GET_SEALS)) & kSeals) != kSeals) {
    return absl::InvalidArgumentError("a peer's memory is not what this version shares");
  }
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return errno_status(errno, "mapping a peer's memory");
  madvise(memory, bytes, MADV_HUGEPAGE);  // advice only, as for the memory plan
  madvise(memory, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(memory);
}

// Meets the peers: the higher rank of two connects. Each says its rank and passes its memory on.
class Meeting {
 public:
  Meeting(const HostListener& listener, const ShmOptions& options, const Descriptor& own,
          HostMemory& memory)
      : listener_(listener), options_(options), own_(own), memory_(memory) {}

  absl::Status run() {
    for (const auto& [rank, name] : options_.listeners) {
      if (rank == options_.rank) break;
      auto connection = connect_to_listener(name);
      if (!connection.ok()) return connection.status();
      if (auto status = greet(std::move(*connection)); !status.ok()) return status;
    }
    const auto own = options_.listeners.find(options_.rank);
    for (auto later = std::next(own); later != options_.listeners.end(); ++later) {
      auto connection = listener_.accept(options_.connect_timeout);
      if (!connection.ok()) return connection.status();
      if (auto status = greet(std::move(*connection)); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  using Iterator = std::map<int, std::string>::const_iterator;

  size_t index_of(Iterator listener) const {
    return static_cast<size_t>(std::distance(options_.listeners.begin(), listener));
  }

  absl::Status greet(Descriptor connection) {
    if (auto status = send_message(connection, options_.rank, own_.get()); !status.ok())
      return status;
    auto message = receive_message(connection, options_.connect_timeout);
    if (!message.ok()) return message.status();
    const auto peer = options_.listeners.find(message->number);
    if (peer == options_.listeners.end() || memory_.peers[index_of(peer)].desk != nullptr) {
      return absl::UnavailableError(
          absl::StrCat("a process of this host says that it is rank ", message->number));
    }
    auto mapped = map_memory(message->descriptor, memory_.desk_bytes);
    if (!mapped.ok()) return mapped.status();
    memory_.peers[index_of(peer)] = {*mapped, std::move(connection)};
    return absl::OkStatus();
  }

  const HostListener& listener_;
  const ShmOptions& options_;
  const Descriptor& own_;
  HostMemory& memory_;
};

}  // namespace

std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat network {};
  if (boot.empty() || stat("/proc/self/ns/net", &network) != 0) return "";
  return absl::StrCat(boot, "/", network.st_ino, "/", geteuid());
}

absl::StatusOr<std::shared_ptr<Transport>> connect_shm(const HostListener& listener,
                                                       const ShmOptions& options) {
  const int ranks = static_cast<int>(options.listeners.size());
  const DeskLayout layout{
      .ranks = ranks, .staging_bytes = kShmRoundBytes, .heap_bytes = heap_bytes(ranks)};
  auto memory = std::make_shared<HostMemory>(DeskView(nullptr, layout).bytes());
  memory->peers.resize(options.listeners.size());
  auto own = make_memory(memory->desk_bytes);
  if (!own.ok()) return own.status();
  auto desk = map_memory(*own, memory->desk_bytes);
  if (!desk.ok()) return desk.status();
  const auto index = std::distance(options.listeners.begin(), options.listeners.find(options.rank));
  memory->peers[static_cast<size_t>(index)].desk = *desk;
  if (auto status = Meeting(listener, options, *own, *memory).run(); !status.ok()) return status;

  DeskOptions desks;
  desks.rank = options.rank;
  desks.world_size = options.world_size;
  desks.layout = layout;
  desks.timeout = options.timeout;
  desks.memory = memory;
  for (const auto& [rank, name] : options.listeners) {
    desks.ranks.push_back(rank);
    desks.desks.emplace_back(memory->peers[desks.desks.size()].desk, layout);
  }
  desks.lost = [peers = memory.get()](int peer) {
    const Descriptor& connection = peers->peers[static_cast<size_t>(peer)].connection;
    return connection.valid() && is_closed(connection);
  };
  return std::make_shared<DeskTransport>(std::move(desks));
}

}  // namespace muster::trainer
