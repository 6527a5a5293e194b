// The side of bench/checkpoint.py that runs our code: saves and loads a checkpoint of a given size
// on request.
//
//   checkpoint_bench FOLDER MIB
//
// Prints {"ready": true, "bytes": B} when its memory is filled. Then, for each line on stdin:
//   save         waits for the disk: {"seconds": x, "path": …}
//   background   the same behind a training that waits only where it must:
//                {"seconds": x, "stall_seconds": y, "path": …}
//   load         reads and verifies everything: {"seconds": x}
//   local_save   a node's own copy in /dev/shm: {"seconds": x}
//   local_load   a restart from that copy, found, verified and read: {"seconds": x}
//   checksum     of the same bytes in memory: {"seconds": x}
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/random/philox.h"
#include "common/time/time.h"
#include "trainer_core/checkpoint/background_saver.h"
#include "trainer_core/checkpoint/local_store.h"

namespace muster::trainer {
namespace {

using Json = nlohmann::json;

// Matrices of 16 MiB: as in a large model, and small enough for any size.
constexpr int64_t kSide = 2048;

// A third parameters, two thirds state, as for AdamW.
CheckpointLayout layout_of(int64_t mib) {
  std::vector<TensorRow> params, state;
  const int64_t matrices = std::max<int64_t>(1, mib / 48);
  for (int64_t i = 0; i < matrices; ++i) {
    const std::string name = absl::StrCat("layers.", i, ".weight");
    params.push_back({name, {kSide, kSide}, i * kSide * kSide});
    for (const char* moment : {"m.", "v."}) {
      const auto row = static_cast<int64_t>(state.size());
      state.push_back({moment + name, {kSide, kSide}, row * kSide * kSide});
    }
  }
  return {.params = ShardedTensors::whole(std::move(params)),
          .optimizer = "adamw",
          .state = ShardedTensors::whole(std::move(state))};
}

// The parameters and optimizer state of a checkpoint.
struct TrainingBuffers {
  explicit TrainingBuffers(const CheckpointLayout& layout)
      : params(layout.params.tensors.size() * kSide * kSide),
        state(layout.state.tensors.size() * kSide * kSide) {}
  CheckpointBlocks blocks() { return {params, state}; }
  std::vector<float> params, state;
};

class Bench {
 public:
  Bench(const std::string& folder, int64_t mib)
      : layout_(layout_of(mib)),
        live_(layout_),
        copy_(layout_),
        store_(folder, 1),
        saver_(store_, layout_, copy_.blocks(), [](const SaveOutcome&) {}) {
    // Values that no disk can compress.
    for (std::vector<float>* block : {&live_.params, &live_.state}) {
      for (size_t i = 0; i < block->size(); ++i)
        (*block)[i] = static_cast<float>(Philox{1, 2}(i / 4)[i % 4]);
    }
  }

  ~Bench() { local_.remove_all(); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  uint64_t bytes() const { return layout_.bytes(); }
  absl::Status prepare() const { return store_.prepare(); }

  absl::StatusOr<Json> run(const std::string& command) {
    const Instant begin = monotonic_now();
    Json answer;
    absl::Status status;
    if (command == "save") {
      std::vector<std::string> notes;
      status = store_.save(info(), layout_, live_.blocks(), notes);
    } else if (command == "background") {
      saver_.begin(info(), live_.blocks());
      saver_.wait_staged();
      answer["stall_seconds"] = to_seconds(monotonic_now() - begin);
      status = saver_.finish()->status;
    } else if (command == "load") {
      std::vector<std::string> notes;
      status = store_.restore_newest(layout_, live_.blocks(), notes).status();
    } else if (command == "local_save") {
      status = save_locally();
    } else if (command == "local_load") {
      status = load_locally();
    } else if (command == "checksum") {
      uint64_t sum = 0;
      for (const std::vector<float>* block : {&live_.params, &live_.state})
        sum += checksum({reinterpret_cast<const char*>(block->data()), 4 * block->size()});
      answer["checksum"] = checksum_text(sum);
    } else {
      status = absl::InvalidArgumentError(absl::StrCat("unknown command ", command));
    }
    if (!status.ok()) return status;
    answer["seconds"] = to_seconds(monotonic_now() - begin);
    answer["path"] = store_.folder(step_);
    return answer;
  }

 private:
  absl::Status save_locally() {
    const std::string save = local_save_name(step_ + 1, 0);
    absl::Status status = local_.open();
    if (status.ok()) status = local_.begin(save);
    if (!status.ok()) return status;
    status =
        local_.write({save, 0, info(), {}}, layout_, live_.blocks(), kCheckpointFileBytes).status();
    if (status.ok()) local_.remove_others(save);
    return status;
  }
  absl::Status load_locally() {
    std::vector<std::string> notes;
    const auto found = complete_saves(local_.parts(), 0, notes);
    if (found.empty()) return absl::NotFoundError("no local checkpoint is complete");
    auto manifest = parse_manifest(found[0].manifest);
    if (!manifest.ok()) return manifest.status();
    manifest->info.folder = local_.folder_of(found[0].save);
    for (const StoredFile& file : manifest->files) {
      if (auto status = local_.verify(found[0].save, file); !status.ok()) return status;
    }
    return read_held(*manifest, layout_, live_.blocks());
  }

  CheckpointInfo info() { return {.folder = "", .step = ++step_, .samples = 0, .config = {}}; }

  const CheckpointLayout layout_;
  TrainingBuffers live_, copy_;
  const LocalStore local_{absl::StrCat("/dev/shm/muster-bench-", getpid())};
  CheckpointStore store_;
  BackgroundSaver saver_;
  int64_t step_ = 0;
};

int serve(const std::string& folder, int64_t mib) {
  Bench bench(folder, mib);
  if (auto status = bench.prepare(); !status.ok()) {
    std::cerr << status << std::endl;
    return 1;
  }
  std::cout << Json{{"ready", true}, {"bytes", bench.bytes()}}.dump() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const auto answer = bench.run(line);
    if (!answer.ok()) {
      std::cerr << answer.status() << std::endl;
      return 1;
    }
    std::cout << answer->dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace muster::trainer

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: checkpoint_bench FOLDER MIB\n";
    return 2;
  }
  return muster::trainer::serve(argv[1], std::atoll(argv[2]));
}
