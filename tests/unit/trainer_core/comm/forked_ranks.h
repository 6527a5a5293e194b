// Ranks that are processes, for tests.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::trainer {

// The ranks of a world. Rank 0 is the test itself; the other ranks are processes that exit with the
// result of `body`. Requires that the test has only one thread at the construction.
class ForkedRanks {
 public:
  using Body = std::function<int(int rank, const std::string& store)>;

  ForkedRanks(int size, const Body& body) {
    if (pipe(ends_.data()) != 0) _exit(2);
    for (int rank = 1; rank < size; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        std::array<char, kAddressBytes> address{};
        if (read(ends_[0], address.data(), kAddressBytes) != kAddressBytes) _exit(3);
        _exit(body(rank, address.data()));
      }
      children_.push_back(child);
    }
  }
  ~ForkedRanks() {
    for (const int end : ends_) close(end);
  }

  // Sends the address of the store to the other ranks, which wait for it before they call `body`.
  void set_address(const std::string& store) const {
    std::array<char, kAddressBytes> address{};
    store.copy(address.data(), kAddressBytes - 1);
    for (size_t i = 0; i < children_.size(); ++i)
      EXPECT_EQ(write(ends_[1], address.data(), kAddressBytes), kAddressBytes);
  }
  pid_t child(int rank) const { return children_[static_cast<size_t>(rank) - 1]; }
  int wait_for(int rank) const {
    int status = 0;
    EXPECT_EQ(waitpid(child(rank), &status, 0), child(rank));
    return status;
  }

 private:
  static constexpr ssize_t kAddressBytes = 32;

  std::array<int, 2> ends_{};
  std::vector<pid_t> children_;
};

}  // namespace muster::trainer
