// Finds TCP connections of a rank on which the other host answers nothing: the evidence that two
// nodes cannot reach each other, for any program and in any phase.
//
// The kernel repeats unacknowledged segments after 0.2 s, 0.4 s, 0.8 s and so on, and connection
// attempts after 1 s, 2 s and so on. The kernel of the other host acknowledges segments even if its
// process is stopped or busy; a full receive buffer is probed instead, and does not count here.
// Attempts to connect show less: a host whose queue of new connections is full drops them.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/stalled_link.h"

namespace muster::worker {

// An unanswered connection, and the socket to which it belongs.
struct UnansweredSocket {
  uint64_t inode = 0;
  StalledLink link;
};

// Returns the unanswered connections to other hosts in the text of /proc/net/tcp or /proc/net/tcp6.
// A connection counts from its third repetition on (1.4 s), an attempt to connect from its second
// one on (3 s). An attempt does not count if another connection to the host is open and nothing is
// repeated on it, because the host most likely answers.
std::vector<UnansweredSocket> parse_unanswered(std::string_view table);

// Reads the links of several ranks at one moment. Not thread-safe. Never blocks on a process.
class LinkReader {
 public:
  // `proc_root`: "/proc", or a folder with its layout.
  explicit LinkReader(std::string proc_root) : proc_root_(std::move(proc_root)) {}

  // Returns the unanswered connections of `pid` and its descendants, at most kStalledLinksMax and
  // one for each other host, ordered by host: an open one, and the one with most repetitions.
  // Returns nothing if they cannot be read.
  std::vector<StalledLink> read(pid_t pid);

 private:
  const std::vector<UnansweredSocket>& sockets_of(pid_t pid);

  std::string proc_root_;
  // By network namespace, because the ranks of a node usually share one.
  std::map<std::string, std::vector<UnansweredSocket>> sockets_;
};

}  // namespace muster::worker
