#include "trainer_core/startup/planned_start.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/files/file_write.h"
#include "trainer_core/base/saved_plan_check.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/parallel/pipeline_schedule.h"
#include "trainer_core/startup/choose_backend.h"
#include "trainer_core/startup/load_config.h"
#include "trainer_core/startup/rank_env.h"

namespace muster::trainer {
namespace {

// Many times the shapes of a model; the file's lines have at most 512 bytes.
constexpr size_t kAlgorithmsMax = 4096;
constexpr size_t kLineBytesMax = 512;

}  // namespace

absl::StatusOr<std::unique_ptr<SavedPlan>> load_saved_plan(const TrainConfig& config) {
  if (config.compiled_trainstep_file.empty()) return nullptr;
  auto plan = read_saved_plan(config.compiled_trainstep_file);
  if (!plan.ok()) return plan.status();
  if (auto status = check_planned_config(*plan, config); !status.ok()) return status;
  return std::make_unique<SavedPlan>(*std::move(plan));
}

absl::Status check_planned_backend(const SavedPlan& saved, const TrainConfig& config,
                                   const Backend& backend) {
  // The backend of hardware=auto is known only now.
  if (auto status = check_planned_config(saved, config); !status.ok()) return status;
  if (backend.memory().is_host()) return check_planned_threads(saved, backend.threads());
  // "NVIDIA H200, compute capability 9.0, …"
  const std::string description = backend.description();
  return check_planned_device(saved, description.substr(0, description.find(", ")));
}

int32_t planned_threads(const TrainConfig& config) {
  if (config.hardware != Hardware::kCpu) return 0;
  // A rank has the threads of OMP_NUM_THREADS, which the command's environment passes to it.
  const auto own = read_rank_env();
  RankEnv env;
  if (own.ok()) env.threads = own->threads;
  env.local_world_size = mesh_of(config.mesh).ranks_per_node();
  return threads_per_rank(config, env);
}

absl::Status check_rank_plan(const SavedPlan& saved, const TrainConfig& config,
                             const TrainingPlan& own, int32_t rank) {
  const Mesh mesh = mesh_of(config.mesh);
  MeshCoordinate coordinate = mesh.coordinate(rank);
  const auto pipeline = static_cast<size_t>(MeshAxis::kPipeline);
  const int32_t stage = coordinate[pipeline];
  // Ranks that differ only along the data axis have the same layout.
  coordinate[static_cast<size_t>(MeshAxis::kData)] = 0;
  MeshCoordinate largest{};
  largest[pipeline] = stage;
  return check_own_plan(saved, {.memory = own.memory(),
                                .stage = stage,
                                .packed = config.packed(),
                                .is_largest = coordinate == largest,
                                .schedule = passes_text(config, stage)});
}

absl::Status check_rank_plan(const TrainConfig& config, const TrainContext& context,
                             const TrainingPlan& own) {
  if (context.saved_plan == nullptr) return absl::OkStatus();
  return check_rank_plan(*context.saved_plan, config, own, context.groups.rank());
}

std::string passes_text(const TrainConfig& config, int32_t stage) {
  const PipelineShape shape = pipeline_shape(config);
  if (shape.stages == 1) return absl::StrCat("f0.0 b0.0 x", shape.micro_batches);
  return absl::StrJoin(pipeline_schedule(shape, stage), " ",
                       [](std::string* out, const PipelinePass& pass) {
                         absl::StrAppend(out, pass.kind == PassKind::kForward ? "f" : "b",
                                         pass.micro_batch, ".", pass.chunk);
                       });
}

std::vector<std::string> stored_algorithms(const TrainConfig& config, const std::string& device) {
  std::vector<std::string> lines;
  const std::string path = gpu_options(config, RankEnv()).algorithms_path;
  if (path.empty() || config.hardware == Hardware::kCpu) return lines;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return lines;
  std::ifstream file(path);
  for (std::string line; lines.size() < kAlgorithmsMax && std::getline(file, line);)
    if (line.size() <= kLineBytesMax && absl::StrContains(line, device)) lines.push_back(line);
  return lines;
}

void store_algorithms(const TrainConfig& config, const SavedPlan& saved) {
  const std::string path = gpu_options(config, RankEnv()).algorithms_path;
  std::error_code error;
  if (saved.algorithms.empty() || path.empty() || std::filesystem::exists(path, error)) return;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  // All ranks come here at once: the first one creates the file, and none replaces it.
  const std::string own = absl::StrCat(path, ".of-", getpid());
  const std::string text = absl::StrCat(absl::StrJoin(saved.algorithms, "\n"), "\n");
  if (!write_file_atomically(own, text).ok()) return;
  std::filesystem::create_hard_link(own, path, error);
  if (error && !std::filesystem::exists(path, error)) {  // a file system without hard links
    std::filesystem::rename(own, path, error);
  }
  std::filesystem::remove(own, error);
}

}  // namespace muster::trainer
