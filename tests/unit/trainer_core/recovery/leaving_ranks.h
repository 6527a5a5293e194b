// Ranks that are threads, for tests of requests to stop.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/unit/meshes.h"
#include "tests/unit/trainer_core/hooked_transport.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/loop/train.h"

namespace muster::trainer {

inline std::mutex ended_mutex;
inline std::vector<ExitCode> ended_with;  // exit codes, in order of the calls of note_end()
inline void note_end(ExitCode code) {
  const std::lock_guard lock(ended_mutex);
  ended_with.push_back(code);
}

// An event that happens once. Thread-safe.
class Moment {
 public:
  void happen() {
    const std::lock_guard lock(mutex_);
    happened_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return happened_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool happened_ = false;
};

// The ranks of a training as threads; a test observes every round of their messages.
struct Ranks {
  explicit Ranks(const TrainConfig& with) : config(with), mesh(mesh_of(with.mesh)) {
    const auto size = static_cast<size_t>(mesh.ranks());
    hooks.resize(size, {.before = [](std::string_view) { return absl::OkStatus(); }});
    on_step.resize(size);
    codes.resize(size);
    errs = std::vector<std::ostringstream>(size);
    signals = std::vector<StopSignals>(size);
  }

  void run(int rank) {
    const auto r = static_cast<size_t>(rank);
    auto page = ProgressWriter::anonymous({});
    ProcessGroups groups(std::make_shared<HookedTransport>(world.join(rank), hooks[r]), mesh,
                         page.get());
    codes[r] = train(config, {.groups = groups,
                              .page = *page,
                              .out = rank == 0 ? out : errs[r],
                              .err = errs[r],
                              .signals = signals[r],
                              .threads = 1,
                              .on_step = on_step[r]});
  }

  std::string err() const {
    std::string all;
    for (const std::ostringstream& err : errs) all += err.str();
    return all;
  }

  TrainConfig config;
  Mesh mesh;
  LocalWorld world{mesh.ranks(), std::chrono::milliseconds(60'000)};
  std::vector<RoundHooks> hooks;
  std::vector<std::function<void(const StepRecord&)>> on_step;
  std::vector<StopSignals> signals;
  std::vector<ExitCode> codes;
  std::ostringstream out;
  std::vector<std::ostringstream> errs;
};

constexpr int64_t kCompleted = 2;  // completed steps when a rank is requested to stop

// Returns a config with one layer on a mesh with these degrees, which saves checkpoints only on
// request.
inline TrainConfig leaving_config(const std::string& checkpoints, const Degrees& degrees) {
  TrainConfig config = tiny_config(mesh_of({.ici = degrees}).ranks());
  config.mesh.ici = degrees;
  config.per_device_batch_size = 4 / (degrees[0] * degrees[2]) / degrees[6];
  config.per_device_batch_size = std::max(config.per_device_batch_size, 1);
  config.model.num_layers = 1;
  config.steps = 8;
  config.enable_checkpointing = true;
  config.checkpoint_directory = checkpoints;
  config.checkpoint_period = 1000;
  return config;
}

}  // namespace muster::trainer
