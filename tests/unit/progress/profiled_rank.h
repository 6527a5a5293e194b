// A fixture for tests of the NCCL plugin: a process with a progress page and the plugin.
#pragma once

#include <dlfcn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "common/progress/progress_page.h"
#include "tests/unit/progress/fake_nccl.h"
#include "tests/unit/temp_folder.h"

namespace muster::fake_nccl {

// The name of the plugin's symbol for a version of the interface.
template <class T>
inline constexpr const char* kSymbol = "ncclProfiler_v5";
template <>
inline constexpr const char* kSymbol<V3> = "ncclProfiler_v3";
template <>
inline constexpr const char* kSymbol<V4> = "ncclProfiler_v4";

// Names tests by the version: "v3".
struct VersionName {
  template <class T>
  static std::string GetName(int) {
    const std::string symbol = kSymbol<T>;
    return symbol.substr(symbol.find('_') + 1);
  }
};

constexpr Call kTwoChannels = {"AllReduce", 1 << 20, "ncclBfloat16", 2};
constexpr Call kOneChannel = {"AllReduce", 1, "ncclFloat32", 1};

// Each test runs in its own process, because a plugin lives as long as its process.
class ProfiledRank : public ::testing::Test {
 protected:
  template <class T>
  const T& load() {
    library_ = dlopen(MUSTER_NCCL_PROFILER, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << dlerror();
    const auto* table = static_cast<const T*>(dlsym(library_, kSymbol<T>));
    EXPECT_NE(table, nullptr) << kSymbol<T>;
    EXPECT_STREQ(table->name, "muster");
    return *table;
  }

  void in_a_rank(const std::function<void()>& body, bool with_page = true) {
    const pid_t child = fork();
    if (child == 0) {
      if (with_page) setenv("MUSTER_PROGRESS_PAGE", path_.c_str(), 1);
      for (const char* name : {"MUSTER_JOB", "MUSTER_ATTEMPT", "RANK"}) setenv(name, "1", 1);
      body();
      _exit(HasFailure() ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "its complaints are above";
  }

  ProgressPage page() const {
    auto read = read_progress_page(path_);
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? *read : ProgressPage{};
  }
  // Returns the page's group of this name, which must exist exactly once.
  GroupProgress group(const std::string& name) const {
    const ProgressPage seen = page();
    const GroupProgress* found = nullptr;
    for (uint32_t i = 0; i < seen.group_count; ++i) {
      if (name != seen.groups[i].name.data()) continue;
      EXPECT_EQ(found, nullptr) << "two groups are called " << name;
      found = &seen.groups[i];
    }
    EXPECT_NE(found, nullptr) << "no group is called " << name;
    return found == nullptr ? GroupProgress{} : *found;
  }

  void* library_ = nullptr;
  const TempFolder folder_;
  const std::string path_ = folder_.file("progress.0");
};

}  // namespace muster::fake_nccl
