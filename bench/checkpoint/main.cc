// Our side of bench/checkpoint.py: saves and loads a checkpoint of a given size on request.
//
//   checkpoint_bench FOLDER MIB
//
// Prints {"ready": true, "bytes": B} when its memory is filled. Then, for each line on standard input:
//   save         waits for the disk: {"seconds": x, "path": …}
//   background   the same behind a training that waits only where it must: {"seconds": x, "stall_seconds": y, "path": …}
//   load         reads and verifies everything: {"seconds": x}
//   checksum     of the same bytes in memory: {"seconds": x}
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/philox.h"
#include "common/time.h"
#include "trainer_core/checkpoint/background_saver.h"

namespace muster::trainer {
namespace {

using Json = nlohmann::json;

constexpr int64_t kSide =
    2048;  // matrices of 16 MiB: a large model's, and small enough for any size

// A third parameters, two thirds state, as AdamW has it.
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

struct Numbers {
  explicit Numbers(const CheckpointLayout& layout)
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
    // Numbers that no disk packs.
    for (std::vector<float>* block : {&live_.params, &live_.state}) {
      for (size_t i = 0; i < block->size(); ++i)
        (*block)[i] = static_cast<float>(Philox{1, 2}(i / 4)[i % 4]);
    }
  }

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
  CheckpointInfo info() { return {.folder = "", .step = ++step_, .samples = 0, .config = {}}; }

  const CheckpointLayout layout_;
  Numbers live_, copy_;
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
