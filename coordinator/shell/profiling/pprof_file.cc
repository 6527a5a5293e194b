#include "coordinator/shell/profiling/pprof_file.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include <absl/debugging/symbolize.h>
#include <absl/strings/str_cat.h>

#include "pprof/profile.pb.h"

namespace muster::coordinator {
namespace {

namespace pprof = perftools::profiles;

// Names that are longer are cut: templates can have names of kilobytes.
constexpr size_t kNameBytesMax = 512;

// Fills a Profile whose texts, functions and locations are stored once.
class PprofWriter {
 public:
  explicit PprofWriter(const std::function<std::string(uint64_t)>& name_of) : name_of_(name_of) {
    text("");
    std::error_code error;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
    pprof::Mapping& mapping = *profile_.add_mapping();
    mapping.set_id(kMapping);
    mapping.set_memory_limit(~uint64_t{0});
    mapping.set_filename(text(program.string()));
    mapping.set_has_functions(true);  // viewers then search for no program
  }

  pprof::Profile& profile() { return profile_; }

  int64_t text(const std::string& text) {
    const auto [found, is_new] = texts_.try_emplace(text, profile_.string_table_size());
    if (is_new) profile_.add_string_table(text);
    return found->second;
  }

  void set_type(const ProfileValue& value, pprof::ValueType& type) {
    type.set_type(text(value.type));
    type.set_unit(text(value.unit));
  }

  // Returns the id of the location of an instruction.
  uint64_t location(uint64_t address) {
    const auto [found, is_new] = locations_.try_emplace(address, locations_.size() + 1);
    if (is_new) {
      pprof::Location& location = *profile_.add_location();
      location.set_id(found->second);
      location.set_mapping_id(kMapping);
      location.set_address(address);
      std::string name = name_of_(address);
      if (name.empty()) name = absl::StrCat("0x", absl::Hex(address));
      location.add_line()->set_function_id(function(name));
    }
    return found->second;
  }

 private:
  static constexpr uint64_t kMapping = 1;

  uint64_t function(const std::string& name) {
    const auto [found, is_new] = functions_.try_emplace(name, functions_.size() + 1);
    if (is_new) {
      pprof::Function& function = *profile_.add_function();
      function.set_id(found->second);
      function.set_name(text(name));
      function.set_system_name(text(name));
    }
    return found->second;
  }

  const std::function<std::string(uint64_t)>& name_of_;
  pprof::Profile profile_;
  std::map<std::string, int64_t> texts_;
  std::map<uint64_t, uint64_t> locations_;
  std::map<std::string, uint64_t> functions_;
};

}  // namespace

std::string function_at(uint64_t address) {
  std::array<char, kNameBytesMax> name{};
  const bool is_known =
      absl::Symbolize(reinterpret_cast<const void*>(address), name.data(), name.size());
  return is_known ? name.data() : "";
}

std::string pprof_file(const StackProfile& profile,
                       const std::function<std::string(uint64_t)>& name_of) {
  PprofWriter writer(name_of);
  pprof::Profile& out = writer.profile();
  for (const ProfileValue& value : profile.values) writer.set_type(value, *out.add_sample_type());
  if (!profile.values.empty()) out.set_default_sample_type(writer.text(profile.values.back().type));
  writer.set_type(profile.period_type, *out.mutable_period_type());
  out.set_period(profile.period);
  out.set_time_nanos(profile.taken_unix_ns);
  out.set_duration_nanos(profile.duration.count());
  for (const ProfileSample& sample : profile.samples) {
    pprof::Sample& row = *out.add_sample();
    for (size_t i = 0; i < sample.stack.size(); ++i) {
      // The instruction before a return address is in the function that called.
      const bool is_exact = i == 0 && profile.interrupted;
      row.add_location_id(writer.location(sample.stack[i] - (is_exact ? 0 : 1)));
    }
    for (const int64_t value : sample.values) row.add_value(value);
  }
  return out.SerializeAsString();
}

// The header: 0, the number of further header words (3), version 0, the period in µs, 0. A sample:
// count, depth, the stack. The trailer: 0, 1, 0. A text with the mapped files follows.
bool read_cpu_samples(const std::string& bytes, StackProfile& profile) {
  constexpr size_t kHeaderWords = 5;
  constexpr uint64_t kDepthMax = 1024;
  std::vector<uint64_t> words(bytes.size() / sizeof(uint64_t));
  if (words.size() < kHeaderWords) return false;
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(uint64_t));
  if (words[0] != 0 || words[1] != 3) return false;
  const auto period_ns = static_cast<int64_t>(words[3]) * 1000;
  profile.values = {{"samples", "count"}, {"cpu", "nanoseconds"}};
  profile.period_type = {"cpu", "nanoseconds"};
  profile.period = period_ns;
  profile.interrupted = true;
  for (size_t at = kHeaderWords; at + 2 < words.size();) {
    const uint64_t count = words[at];
    const uint64_t depth = words[at + 1];
    if (count == 0) return true;
    at += 2;
    if (depth > kDepthMax || depth > words.size() - at) return false;
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(at);
    const auto samples = static_cast<int64_t>(count);
    profile.samples.push_back(
        {{begin, begin + static_cast<std::ptrdiff_t>(depth)}, {samples, samples * period_ns}});
    at += depth;
  }
  return false;
}

}  // namespace muster::coordinator
