#include "trainer_core/comm/shm.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "trainer_core/comm/mailbox_transport.h"
#include "trainer_core/comm/rank_list.h"

namespace muster::trainer {
namespace {

using std::chrono::milliseconds;

// The interval at which ShmOptions::check is called.
constexpr milliseconds kCheckInterval{100};

// These seals prevent a peer from shrinking memory that is mapped here: a read beyond its end would
// raise SIGBUS.
constexpr unsigned kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

MailboxLayout layout_of(int ranks) { return {.ranks = ranks, .staging_bytes = kShmRoundBytes}; }

// The mailboxes of a host's ranks, and the sockets that reveal the end of their owners.
struct HostMemory {
  struct Peer {
    std::byte* mailbox = nullptr;
    Descriptor connection;  // invalid for this rank itself
  };

  explicit HostMemory(size_t bytes) : mailbox_bytes(bytes) {}
  ~HostMemory() {
    for (Peer& peer : peers) {
      if (peer.mailbox != nullptr) munmap(peer.mailbox, mailbox_bytes);
    }
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  size_t mailbox_bytes;
  std::vector<Peer> peers;  // in the order of ranks
};

absl::StatusOr<Descriptor> make_memory(size_t bytes) {
  // A memfd counts as a file; beyond the file size limit the process gets a signal, not an error.
  rlimit files{};
  if (getrlimit(RLIMIT_FSIZE, &files) != 0 || files.rlim_cur < bytes)
    return absl::ResourceExhaustedError(absl::StrCat(
        "files may have ", files.rlim_cur, " bytes (ulimit -f), and ", bytes, " are shared"));
  Descriptor fd(memfd_create("muster-mailbox", MFD_CLOEXEC | MFD_ALLOW_SEALING));
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

// Connects to the peers. Of two ranks, the higher one connects and sends its rank and memory, and
// the lower one replies with its own. The code never waits for a single connection, so a client
// that sends nothing or an invalid message cannot prevent the ranks from connecting.
class Meeting {
 public:
  Meeting(const ShmSeat& seat, const ShmOptions& options, HostMemory& memory)
      : seat_(seat), options_(options), memory_(memory) {}

  absl::Status run() {
    if (auto status = call_lower_ranks(); !status.ok()) return status;
    while (true) {
      const std::vector<int> missing = missing_ranks();
      if (missing.empty()) return absl::OkStatus();
      if (auto status = await_word(missing); !status.ok()) return status;
      if (auto status = listen_on_socket(); !status.ok()) return status;
      if (polled_.back().revents != 0) admit_caller();
    }
  }

 private:
  // A connected client that has not identified itself.
  struct Caller {
    Descriptor socket;
    // Owner of the listener; nullopt: the client has connected to this rank's listener.
    std::optional<int> rank;
  };
  // The maximum number of connections beyond the number of ranks. The oldest one that has sent
  // nothing is closed for the next.
  static constexpr size_t kStrangersMax = 64;

  size_t index_of(int rank) const {
    return static_cast<size_t>(
        std::distance(options_.listeners.begin(), options_.listeners.find(rank)));
  }
  bool is_connected(int rank) const { return memory_.peers[index_of(rank)].mailbox != nullptr; }

  std::vector<int> missing_ranks() const {
    std::vector<int> missing;
    for (const auto& [rank, name] : options_.listeners)
      if (!is_connected(rank)) missing.push_back(rank);
    return missing;
  }

  absl::Status call_lower_ranks() {
    for (const auto& [rank, name] : options_.listeners) {
      if (rank == options_.rank) break;
      auto connection = connect_to_listener(name, options_.deadline);
      if (!connection.ok()) return connection.status();
      if (auto status = introduce(*connection); !status.ok()) return status;
      callers_.push_back({std::move(*connection), rank});
    }
    return absl::OkStatus();
  }

  absl::Status introduce(const Descriptor& socket) const {
    return send_message(socket, options_.rank, seat_.memory().get());
  }

  // Blocks until a client has sent something, or another one has connected.
  absl::Status await_word(const std::vector<int>& missing) {
    polled_.clear();
    for (const Caller& caller : callers_) polled_.push_back({caller.socket.get(), POLLIN, 0});
    polled_.push_back({seat_.listener().socket().get(), POLLIN, 0});
    while (true) {
      const auto left = std::chrono::ceil<milliseconds>(options_.deadline - monotonic_now());
      const auto wait = options_.check ? std::min(left, kCheckInterval) : left;
      int ready = 0;
      if (left.count() > 0)
        ready = poll(polled_.data(), polled_.size(), static_cast<int>(wait.count()));
      if (ready > 0 || (ready < 0 && errno == EINTR)) return absl::OkStatus();
      if (wait == left) break;
      if (auto status = options_.check(); !status.ok()) return status;
    }
    return absl::DeadlineExceededError(
        absl::StrCat("on this host, nothing came from ", rank_list(missing)));
  }

  absl::Status listen_on_socket() {
    std::vector<Caller> silent;
    for (size_t i = 0; i < callers_.size(); ++i) {
      Caller& caller = callers_[i];
      if (polled_[i].revents == 0) {
        silent.push_back(std::move(caller));
        continue;
      }
      const bool is_peer = caller.rank.has_value();
      if (auto status = meet(std::move(caller)); is_peer && !status.ok()) return status;
    }
    callers_ = std::move(silent);
    return absl::OkStatus();
  }

  absl::Status meet(Caller caller) {
    auto message = receive_message(caller.socket);
    if (!message.ok()) return message.status();
    const int rank = message->number;
    const bool is_expected = caller.rank
                                 ? rank == *caller.rank
                                 : rank > options_.rank && options_.listeners.contains(rank);
    if (!is_expected || is_connected(rank)) {
      return absl::UnavailableError(
          absl::StrCat("a process of this host claims to be rank ", rank));
    }
    if (!caller.rank) {
      if (auto status = introduce(caller.socket); !status.ok()) return status;
    }
    auto mapped = map_memory(message->descriptor, memory_.mailbox_bytes);
    if (!mapped.ok()) return mapped.status();
    memory_.peers[index_of(rank)] = {*mapped, std::move(caller.socket)};
    return absl::OkStatus();
  }

  void admit_caller() {
    Descriptor connection = seat_.listener().accept();
    if (!connection.valid()) return;
    if (callers_.size() >= options_.listeners.size() + kStrangersMax) {
      const auto is_stranger = [](const Caller& caller) { return !caller.rank; };
      callers_.erase(std::ranges::find_if(callers_, is_stranger));
    }
    callers_.push_back({std::move(connection), std::nullopt});
  }

  const ShmSeat& seat_;
  const ShmOptions& options_;
  HostMemory& memory_;
  std::vector<Caller> callers_;
  std::vector<pollfd> polled_;  // callers_, then the listener
};

}  // namespace

std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat network {};
  if (boot.empty() || stat("/proc/self/ns/net", &network) != 0) return "";
  return absl::StrCat(boot, "/", network.st_ino, "/", geteuid());
}

absl::StatusOr<ShmSeat> ShmSeat::take(int ranks) {
  auto listener = HostListener::open();
  if (!listener.ok()) return listener.status();
  auto memory = make_memory(MailboxView(nullptr, layout_of(ranks)).bytes());
  if (!memory.ok()) return memory.status();
  return ShmSeat(std::move(*listener), std::move(*memory));
}

absl::StatusOr<std::shared_ptr<Transport>> connect_shm(const ShmSeat& seat,
                                                       const ShmOptions& options) {
  const MailboxLayout layout = layout_of(static_cast<int>(options.listeners.size()));
  auto memory = std::make_shared<HostMemory>(MailboxView(nullptr, layout).bytes());
  memory->peers.resize(options.listeners.size());
  auto mailbox = map_memory(seat.memory(), memory->mailbox_bytes);
  if (!mailbox.ok()) return mailbox.status();
  const auto index = std::distance(options.listeners.begin(), options.listeners.find(options.rank));
  memory->peers[static_cast<size_t>(index)].mailbox = *mailbox;
  if (auto status = Meeting(seat, options, *memory).run(); !status.ok()) return status;

  MailboxOptions mailboxes;
  mailboxes.rank = options.rank;
  mailboxes.world_size = options.world_size;
  mailboxes.layout = layout;
  mailboxes.timeout = options.timeout;
  mailboxes.memory = memory;
  for (const auto& [rank, name] : options.listeners) {
    mailboxes.ranks.push_back(rank);
    mailboxes.mailboxes.emplace_back(memory->peers[mailboxes.mailboxes.size()].mailbox, layout);
  }
  mailboxes.lost = [peers = memory.get()](int peer) {
    const Descriptor& connection = peers->peers[static_cast<size_t>(peer)].connection;
    return connection.valid() && is_closed(connection);
  };
  return std::make_shared<MailboxTransport>(std::move(mailboxes));
}

}  // namespace muster::trainer
