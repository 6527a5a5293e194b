#include "trainer_core/startup/rank_env.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {
namespace {

// The maximum of a timeout: a week, longer than any useful wait for a rendezvous or a collective.
constexpr int64_t kTimeoutMsMax = 7LL * 24 * 3600 * 1000;

// Reads numbers from the environment and stores the first error.
class NumberReader {
 public:
  explicit NumberReader(const GetEnv& get) : get_(get) {}

  template <class T>
  void read(const std::string& name, T min, T max, T& out) {
    if (const auto text = get_(name)) parse(name, *text, min, max, out);
  }

  // Reads the first number of OpenMP's list, which has one for each level of nested regions.
  void read_threads(const std::string& name, int32_t& out) {
    if (const auto text = get_(name))
      parse(name, std::string_view(*text).substr(0, text->find(',')), 1, kThreadsMax, out);
  }

  void read_timeout(const std::string& name, std::chrono::milliseconds& out) {
    int64_t ms = out.count();
    read<int64_t>(name, 1, kTimeoutMsMax, ms);
    out = std::chrono::milliseconds(ms);
  }

  const absl::Status& status() const { return status_; }

 private:
  template <class T>
  void parse(const std::string& name, std::string_view text, T min, T max, T& out) {
    if (!status_.ok()) return;
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
      status_ = absl::InvalidArgumentError(absl::StrCat("environment variable ", name, " is \"",
                                                        av(text), "\"; it must be a number from ",
                                                        min, " to ", max));
      return;
    }
    out = value;
  }

  const GetEnv& get_;
  absl::Status status_;
};

}  // namespace

ProgressIdentity RankEnv::identity(int64_t total_steps) const {
  return {.job = job,
          .attempt = attempt,
          .incarnation = incarnation,
          .rank = rank,
          .local_rank = local_rank,
          .world_size = world_size,
          .total_steps = total_steps};
}

absl::StatusOr<RankEnv> read_rank_env(const GetEnv& get) {
  constexpr int32_t kRanksMax = std::numeric_limits<int32_t>::max();
  RankEnv env;
  NumberReader reader(get);
  reader.read("WORLD_SIZE", 1, kRanksMax, env.world_size);
  reader.read("RANK", 0, env.world_size - 1, env.rank);
  env.local_world_size = env.world_size;
  reader.read("LOCAL_WORLD_SIZE", 1, env.world_size, env.local_world_size);
  reader.read("LOCAL_RANK", 0, env.local_world_size - 1, env.local_rank);
  reader.read_threads("OMP_NUM_THREADS", env.threads);
  reader.read("MUSTER_JOB", uint64_t{0}, std::numeric_limits<uint64_t>::max(), env.job);
  reader.read("MUSTER_ATTEMPT", uint32_t{0}, std::numeric_limits<uint32_t>::max(), env.attempt);
  reader.read("MUSTER_INCARNATION", uint64_t{0}, std::numeric_limits<uint64_t>::max(),
              env.incarnation);
  reader.read("MUSTER_CHECKPOINT_STEP", uint64_t{0},
              static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), env.checkpoint_step);
  reader.read_timeout("MUSTER_RENDEZVOUS_TIMEOUT_MS", env.connect_timeout);
  reader.read_timeout("MUSTER_COLLECTIVE_TIMEOUT_MS", env.collective_timeout);
  if (!reader.status().ok()) return reader.status();
  env.has_gpus = env.job != 0 && !get("CUDA_VISIBLE_DEVICES").value_or("").empty();
  env.progress_page = get("MUSTER_PROGRESS_PAGE").value_or("");
  env.local_checkpoints = get("MUSTER_LOCAL_CHECKPOINTS").value_or("");
  env.rendezvous = get("MUSTER_RENDEZVOUS").value_or("");
  env.bind_address = get("MUSTER_BIND_ADDRESS").value_or(env.bind_address);
  if (env.world_size > 1 && env.rendezvous.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("WORLD_SIZE is ", env.world_size,
                     ", but MUSTER_RENDEZVOUS (host:port of the store) is not set"));
  }
  return env;
}

absl::StatusOr<RankEnv> read_rank_env() {
  return read_rank_env([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

}  // namespace muster::trainer
