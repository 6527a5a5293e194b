#include "common/process/host_name.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

// Returns host_name() on a machine of that name: a child in a namespace of its own.
std::string host_name_of(const std::string& kernel_name) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::string name;
    if (unshare(CLONE_NEWUTS) == 0 && sethostname(kernel_name.data(), kernel_name.size()) == 0)
      name = host_name();
    (void)!write(ends[1], name.data(), name.size());
    _exit(0);
  }
  close(ends[1]);
  std::string name(1024, '\0');
  const ssize_t got = read(ends[0], name.data(), name.size());
  name.resize(got > 0 ? static_cast<size_t>(got) : 0);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return name;
}

TEST(HostName, IsValidUtf8WhateverTheKernelHas) {
  if (geteuid() != 0) GTEST_SKIP() << "setting a host name needs root";
  const std::string plain = host_name_of("node-7");
  if (plain.empty()) GTEST_SKIP() << "this place has no UTS namespaces";
  EXPECT_EQ(plain, "node-7");
  EXPECT_EQ(host_name_of("caf\xE9"), "caf\\xe9");
  EXPECT_EQ(host_name_of("\xFF\xFE"), "\\xff\\xfe");
  EXPECT_EQ(host_name_of("n\xC5\x93ud"), "n\xC5\x93ud");
  EXPECT_EQ(host_name_of("cut \xE4\xB8"), "cut \\xe4\\xb8");
  EXPECT_EQ(host_name_of("a\nb"), "a\\x0ab");
  EXPECT_EQ(host_name_of("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(host_name_of("\xC2\x9B"
                         "2J"),
            "\\x9b2J");
  EXPECT_EQ(host_name_of(""), "localhost");
}

TEST(HostName, IsNeverEmpty) { EXPECT_FALSE(host_name().empty()); }

}  // namespace
}  // namespace muster
