// The side of bench/mesh.py that runs our code: a training on a mesh whose ranks are processes of
// this machine, step by step on request.
//
//   mesh KEY=VALUE …   threads (per rank); the model: layers width heads mlp vocab experts;
//                      the batch: seq batch micro_batches; the degrees of the mesh: data fsdp …
//
// It runs train() itself, which pauses between steps. Prints {"ready": true} when warm, or
// {"ready": false, "why": …} if this version does not support the mesh. Then, for each line
// `steps N` on stdin, as JSON: "seconds" of each step, from the end of a step on rank 0 to the
// next;
// "cpu_seconds" of a step, the processor time of all ranks; "loss" of the last one; "comm_seconds"
// and "comm_hidden_fraction" on rank 0.
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/spawn_ranks.h"
#include "common/time/time.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/comm/world.h"
#include "trainer_core/loop/train.h"

namespace muster::trainer {
namespace {

using Json = nlohmann::json;
using Words = std::map<std::string, int32_t>;

constexpr int32_t kWarmSteps = 2;

Words words_of(const std::vector<std::string>& arguments) {
  Words words;
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    if (equals != std::string::npos)
      words[argument.substr(0, equals)] = std::stoi(argument.substr(equals + 1));
  }
  return words;
}

TrainConfig config_of(Words words) {
  const auto take = [&](const std::string& name) {
    return words.try_emplace(name, 1).first->second;
  };
  TrainConfig config;
  ModelConfig& model = config.model;
  model.num_layers = take("layers");
  model.emb_dim = take("width");
  model.num_query_heads = model.num_kv_heads = take("heads");
  model.head_dim = model.emb_dim / model.num_query_heads;
  model.mlp_dim = take("mlp");
  model.vocab_size = take("vocab");
  if (const int32_t experts = take("experts"); experts > 1)
    model.experts = {.count = experts, .per_token = 2, .mlp_dim = model.mlp_dim};
  for (size_t i = 0; i < kMeshAxisCount; ++i)
    config.mesh.ici[i] = take(std::string(kMeshAxisNames[i]));
  const int32_t slices = batch_slice(mesh_of(config.mesh), 0).count;
  config.gradient_accumulation_steps = take("micro_batches");
  config.per_device_batch_size = take("batch") / slices / config.gradient_accumulation_steps;
  config.max_target_length = take("seq");
  config.remat_policy = RematPolicy::kNone;
  config.enable_checkpointing = config.save_checkpoint_on_completion = false;
  config.steps = config.optimizer.schedule_steps = 1'000'000;  // more than any request
  config.threads = take("threads");
  return config;
}

int64_t cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

// The requested steps on one rank: train() calls it after each step.
class StepTimer {
 public:
  explicit StepTimer(ProcessGroups& groups) : group_(groups.everyone()) {}

  void after_step(const StepRecord& record) {
    seconds_.push_back(to_seconds(monotonic_now() - begin_));
    comm_seconds_ += record.comm ? record.comm->seconds : 0;
    hidden_seconds_ += record.comm ? record.comm->seconds * record.comm->hidden_fraction : 0;
    if (--left_ == 0) {
      report(record.loss);
      left_ = next_command();
      seconds_.clear();
      comm_seconds_ = hidden_seconds_ = 0;
      cpu_begin_ = cpu_us();
    }
    begin_ = monotonic_now();
  }

 private:
  void report(double loss) {
    const std::vector<int32_t> mine = {static_cast<int32_t>(cpu_us() - cpu_begin_)};
    std::vector<int32_t> all(static_cast<size_t>(group_.size()));
    must(group_.all_gather(mine, all, "processor time"));
    if (group_.rank() != 0) return;
    if (!std::exchange(warm_, true)) {
      std::cout << Json{{"ready", true}} << std::endl;
      return;
    }
    double cpu = 0;
    for (const int32_t us : all) cpu += us * 1e-6;
    std::cout << Json{{"seconds", seconds_},
                      {"cpu_seconds", cpu / static_cast<double>(seconds_.size())},
                      {"loss", loss},
                      {"comm_seconds", comm_seconds_ / static_cast<double>(seconds_.size())},
                      {"comm_hidden_fraction",
                       comm_seconds_ > 0 ? hidden_seconds_ / comm_seconds_ : 1}}
              << std::endl;
  }

  // The other ranks wait here while other programs run.
  int32_t next_command() {
    std::vector<int32_t> steps = {0};
    std::string word;
    if (group_.rank() == 0 && !(std::cin >> word >> steps[0])) steps[0] = 0;
    must(group_.broadcast(steps, 0, "command"));
    if (steps[0] <= 0) std::_Exit(0);
    return steps[0];
  }

  static void must(const absl::Status& status) {
    if (status.ok()) return;
    std::cerr << status << std::endl;
    std::_Exit(1);
  }

  ProcessGroup& group_;
  int32_t left_ = kWarmSteps;
  bool warm_ = false;
  Instant begin_;
  int64_t cpu_begin_ = 0;
  std::vector<double> seconds_;
  double comm_seconds_ = 0, hidden_seconds_ = 0;
};

int run_rank(const TrainConfig& config, int rank, const std::string& store) {
  std::signal(SIGPIPE, SIG_IGN);
  const Mesh mesh = mesh_of(config.mesh);
  WorldOptions options;
  options.gloo = {.rank = rank, .size = mesh.ranks(), .rendezvous = store, .scope = "bench/"};
  auto transport = connect_world(options);
  if (!transport.ok()) {
    std::cerr << transport.status() << std::endl;
    return 1;
  }
  const auto page = ProgressWriter::anonymous({});
  ProcessGroups groups(*std::move(transport), mesh, page.get());
  StepTimer timer(groups);
  std::ostringstream out;
  StopSignals signals;
  const ExitCode code =
      train(config, {.groups = groups,
                     .page = *page,
                     .out = out,
                     .err = std::cerr,
                     .signals = signals,
                     .threads = config.threads,
                     .on_step = [&](const StepRecord& record) { timer.after_step(record); }});
  return static_cast<int>(code);
}

int run(const std::vector<std::string>& arguments) {
  const TrainConfig config = config_of(words_of(arguments));
  if (auto status = validate(config); !status.ok()) {
    std::cout << Json{{"ready", false}, {"why", std::string(status.message())}} << std::endl;
    return 0;
  }
  const bool is_rank = arguments.back().find('=') == std::string::npos;
  return is_rank ? run_rank(config, std::stoi(arguments[arguments.size() - 2]), arguments.back())
                 : spawn_ranks(mesh_of(config.mesh).ranks(), arguments);
}

}  // namespace
}  // namespace muster::trainer

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    std::cerr << "usage: mesh KEY=VALUE …\n";
    return 2;
  }
  return muster::trainer::run(arguments);
}
