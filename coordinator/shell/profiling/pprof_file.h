// Samples of stacks as a file in pprof's format, with the names of functions, so that it can be
// read on a machine that does not have this program.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/time/time.h"

namespace muster::coordinator {

struct ProfileSample {
  // Program counters, the innermost function first.
  std::vector<uint64_t> stack;
  std::vector<int64_t> values;  // one for each of StackProfile::values
};

struct ProfileValue {
  const char* type = "";  // "cpu"
  const char* unit = "";  // "nanoseconds"
};

struct StackProfile {
  std::vector<ProfileValue> values;  // the last one is what viewers show first
  ProfileValue period_type;
  int64_t period = 0;
  int64_t taken_unix_ns = 0;
  Duration duration{};
  // The first program counter of a stack is where the thread was interrupted. Otherwise each is the
  // address after a call.
  bool interrupted = false;
  std::vector<ProfileSample> samples;
};

// Returns the name of the function at an address of this process; "" if it is unknown.
std::string function_at(uint64_t address);

// Returns the file: pprof's Profile message.
std::string pprof_file(const StackProfile& profile,
                       const std::function<std::string(uint64_t)>& name_of = function_at);

// Reads the samples of the legacy CPU profile that gperftools writes: words of 8 bytes. Each value
// is a number of samples and their CPU time. Returns false if `bytes` is not such a profile.
bool read_cpu_samples(const std::string& bytes, StackProfile& profile);

}  // namespace muster::coordinator
