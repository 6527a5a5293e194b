#include "worker/stacks/stalled_links.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"
#include "worker/stacks/proc_files.h"

namespace muster::worker {
namespace {

// Some 50,000 connections. Those beyond are not examined.
constexpr size_t kTableBytesMax = size_t{8} << 20;
constexpr size_t kSocketsMax = 1024;
constexpr size_t kLinkProcessesMax = 256;
constexpr size_t kLinkThreadsMax = 256;
constexpr size_t kLinkChildrenBytesMax = 4096;
constexpr int kLinkFilesMax = 65'536;

// Fields of a line of /proc/net/tcp, in proc(5).
constexpr size_t kRemote = 2;
constexpr size_t kState = 3;
constexpr size_t kTimer = 5;
constexpr size_t kRepetitions = 6;
constexpr size_t kInode = 9;

constexpr char kEstablished[] = "01";
constexpr char kSynSent[] = "02";
constexpr char kRetransmissionTimer[] = "01:";

// Returns the address in "0200000A:1267": words of 4 bytes in the byte order of the machine.
std::optional<std::pair<std::string, int32_t>> parse_address(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, ':');
  uint32_t port = 0;
  if (!absl::SimpleHexAtoi(parts.second, &port) || port > 0xFFFF) return std::nullopt;
  constexpr size_t kWordDigits = 8;
  std::array<uint32_t, 4> words{};
  const size_t count = parts.first.size() / kWordDigits;
  if (parts.first.size() % kWordDigits != 0 || (count != 1 && count != 4)) return std::nullopt;
  for (size_t i = 0; i < count; ++i)
    if (!absl::SimpleHexAtoi(parts.first.substr(i * kWordDigits, kWordDigits), &words[i]))
      return std::nullopt;
  std::array<char, INET6_ADDRSTRLEN> name{};
  const bool is_v6 = count == 4;
  in6_addr v6{};
  std::memcpy(&v6, words.data(), sizeof(v6));
  const bool is_mapped = is_v6 && IN6_IS_ADDR_V4MAPPED(&v6);
  const void* address = is_mapped ? static_cast<const void*>(&words[3]) : words.data();
  if (inet_ntop(is_v6 && !is_mapped ? AF_INET6 : AF_INET, address, name.data(), name.size()) ==
      nullptr)
    return std::nullopt;
  return std::pair(std::string(name.data()), static_cast<int32_t>(port));
}

bool is_this_host(const std::string& host) {
  return absl::StartsWith(host, "127.") || host == "::1";
}

std::optional<UnansweredSocket> parse_socket(absl::string_view line) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (fields.size() <= kInode || !absl::StartsWith(fields[kTimer], kRetransmissionTimer))
    return std::nullopt;
  const bool is_connecting = fields[kState] == kSynSent;
  if (!is_connecting && fields[kState] != kEstablished) return std::nullopt;
  constexpr uint32_t kSegmentRepeated = 3;
  constexpr uint32_t kConnectRepeated = 2;
  uint32_t repetitions = 0;
  UnansweredSocket socket;
  auto address = parse_address(fields[kRemote]);
  if (!address || !absl::SimpleHexAtoi(fields[kRepetitions], &repetitions) ||
      !absl::SimpleAtoi(fields[kInode], &socket.inode) ||
      repetitions < (is_connecting ? kConnectRepeated : kSegmentRepeated))
    return std::nullopt;
  socket.link = {std::move(address->first), address->second, is_connecting,
                 static_cast<int32_t>(std::min<uint32_t>(repetitions, 255))};
  if (is_this_host(socket.link.host)) return std::nullopt;
  return socket;
}

// Returns those of `hosts` with an open connection in the table on which nothing is repeated.
std::set<std::string> answering_hosts(absl::string_view table, const std::set<std::string>& hosts) {
  std::set<std::string> answering;
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint32_t repetitions = 0;
    if (fields.size() <= kInode || fields[kState] != kEstablished ||
        !absl::SimpleHexAtoi(fields[kRepetitions], &repetitions) || repetitions > 0)
      continue;
    const auto address = parse_address(fields[kRemote]);
    if (address && hosts.contains(address->first)) answering.insert(address->first);
  }
  return answering;
}

std::string link_at(const std::string& path) {
  std::array<char, 64> target{};
  const ssize_t size = readlink(path.c_str(), target.data(), target.size());
  return {target.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

// Returns the process and its descendants.
std::vector<pid_t> process_tree(const std::string& proc_root, pid_t root) {
  std::vector<pid_t> pids = {root};
  for (size_t i = 0; i < pids.size(); ++i) {
    for (const pid_t tid : read_thread_ids(proc_root, pids[i], kLinkThreadsMax)) {
      const auto children = read_proc_file(
          absl::StrCat(proc_root, "/", pids[i], "/task/", tid, "/children"), kLinkChildrenBytesMax);
      if (!children) continue;
      for (const absl::string_view word :
           absl::StrSplit(*children, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
        pid_t child = 0;
        if (pids.size() < kLinkProcessesMax && absl::SimpleAtoi(word, &child))
          pids.push_back(child);
      }
    }
  }
  return pids;
}

// Adds the sockets that the process has open.
void add_sockets(const std::string& proc_root, pid_t pid, std::set<uint64_t>& inodes) {
  const std::string files = absl::StrCat(proc_root, "/", pid, "/fd");
  DIR* listing = opendir(files.c_str());
  if (listing == nullptr) return;
  absl::Cleanup close_listing = [&] { closedir(listing); };
  for (int i = 0; i < kLinkFilesMax; ++i) {
    const dirent* entry = readdir(listing);
    if (entry == nullptr) return;
    const std::string target = link_at(absl::StrCat(files, "/", entry->d_name));
    absl::string_view rest = target;
    uint64_t inode = 0;
    if (absl::ConsumePrefix(&rest, "socket:[") && absl::ConsumeSuffix(&rest, "]") &&
        absl::SimpleAtoi(rest, &inode))
      inodes.insert(inode);
  }
}

}  // namespace

std::vector<UnansweredSocket> parse_unanswered(std::string_view table) {
  std::vector<UnansweredSocket> sockets;
  for (const absl::string_view line : absl::StrSplit(av(table), '\n')) {
    // Most lines show no repetition; a line without the timer is not split.
    if (!absl::StrContains(line, " 01:")) continue;
    if (auto socket = parse_socket(line)) sockets.push_back(*std::move(socket));
    if (sockets.size() >= kSocketsMax) break;
  }
  std::set<std::string> connecting;
  for (const UnansweredSocket& socket : sockets)
    if (socket.link.is_connecting) connecting.insert(socket.link.host);
  if (connecting.empty()) return sockets;
  const std::set<std::string> answering = answering_hosts(av(table), connecting);
  std::erase_if(sockets, [&](const UnansweredSocket& socket) {
    return socket.link.is_connecting && answering.contains(socket.link.host);
  });
  return sockets;
}

const std::vector<UnansweredSocket>& LinkReader::sockets_of(pid_t pid) {
  const std::string folder = absl::StrCat(proc_root_, "/", pid);
  const auto [entry, is_new] = sockets_.try_emplace(link_at(folder + "/ns/net"));
  if (is_new) {
    // One table, because a host may have connections of both kinds.
    std::string table;
    for (const char* file : {"/net/tcp", "/net/tcp6"})
      if (const auto part = read_proc_file(folder + file, kTableBytesMax))
        absl::StrAppend(&table, *part, "\n");
    entry->second = parse_unanswered(table);
  }
  return entry->second;
}

std::vector<StalledLink> LinkReader::read(pid_t pid) {
  if (pid <= 0) return {};
  const std::vector<UnansweredSocket>& sockets = sockets_of(pid);
  if (sockets.empty()) return {};
  std::set<uint64_t> own;
  for (const pid_t process : process_tree(proc_root_, pid)) add_sockets(proc_root_, process, own);
  std::map<std::string, StalledLink> links;
  const auto order = [](const StalledLink& link) {
    return std::tuple(!link.is_connecting, link.repetitions, link.port);
  };
  for (const UnansweredSocket& socket : sockets) {
    if (!own.contains(socket.inode)) continue;
    const auto [known, is_new] = links.try_emplace(socket.link.host, socket.link);
    if (!is_new && order(known->second) < order(socket.link)) known->second = socket.link;
  }
  std::vector<StalledLink> found;
  for (auto& [host, link] : links)
    if (found.size() < kStalledLinksMax) found.push_back(std::move(link));
  return found;
}

}  // namespace muster::worker
