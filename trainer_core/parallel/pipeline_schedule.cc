#include "trainer_core/parallel/pipeline_schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "trainer_core/base/check.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::trainer {
namespace {

// Returns the pass with index `number` among those of its kind. Micro-batches pass through the
// chunks in groups of as many as there are stages.
PipelinePass pass(const PipelineShape& shape, PassKind kind, int32_t number) {
  if (shape.chunks == 1) return {kind, 0, number};
  const int32_t group = shape.virtual_stages();
  const int32_t chunk = number % group / shape.stages;
  return {.kind = kind,
          .chunk = kind == PassKind::kForward ? chunk : shape.chunks - 1 - chunk,
          .micro_batch = number / group * shape.stages + number % shape.stages};
}

// Returns the number of forward passes before the first backward pass, which are those until the
// first gradient can arrive.
int32_t warm_up(const PipelineShape& shape, int32_t stage) {
  const int32_t behind = shape.stages - 1 - stage;
  return shape.chunks == 1 ? behind : 2 * behind + (shape.chunks - 1) * shape.stages;
}

// A pool of numbered buffers. An allocation gets the lowest free number.
class BufferPool {
 public:
  using Key = std::pair<int32_t, int32_t>;

  int32_t take(Key key) {
    if (const auto found = taken_.find(key); found != taken_.end()) return found->second;
    auto free = std::ranges::find(busy_, false);
    if (free == busy_.end()) free = busy_.insert(busy_.end(), false);
    *free = true;
    return taken_[key] = static_cast<int32_t>(free - busy_.begin());
  }
  void give_back(Key key) {
    const auto found = taken_.find(key);
    busy_[static_cast<size_t>(found->second)] = false;
    taken_.erase(found);
  }

 private:
  std::map<Key, int32_t> taken_;
  std::vector<bool> busy_;
};

// Assigns slots and token buffers. The forward pass of a chunk allocates a slot, and its backward
// pass frees it. The first pass of a micro-batch allocates a token buffer, and its last pass, the
// backward pass of chunk 0, frees it.
void assign_buffers(std::vector<PipelinePass>& schedule) {
  BufferPool slots, batches;
  for (PipelinePass& pass : schedule) {
    const BufferPool::Key chunk{pass.chunk, pass.micro_batch}, batch{0, pass.micro_batch};
    pass.slot = slots.take(chunk);
    pass.batch = batches.take(batch);
    if (pass.kind == PassKind::kForward) continue;
    slots.give_back(chunk);
    if (pass.chunk == 0) batches.give_back(batch);
  }
}

}  // namespace

std::vector<PipelinePass> pipeline_schedule(const PipelineShape& shape, int32_t stage) {
  MUSTER_CHECK(shape.stages >= 1 && shape.chunks >= 1 && shape.micro_batches >= 1 && stage >= 0 &&
               stage < shape.stages)
      << "stage " << stage << " of " << shape.stages;
  MUSTER_CHECK(shape.chunks == 1 || shape.micro_batches % shape.stages == 0)
      << shape.micro_batches << " micro-batches for " << shape.stages << " interleaved stages";
  const int32_t all = shape.chunks * shape.micro_batches;
  const int32_t ahead = std::min(warm_up(shape, stage), all);
  std::vector<PipelinePass> schedule;
  schedule.reserve(2 * static_cast<size_t>(all));
  for (int32_t i = 0; i < all + ahead; ++i) {
    if (i < all) schedule.push_back(pass(shape, PassKind::kForward, i));
    if (i >= ahead) schedule.push_back(pass(shape, PassKind::kBackward, i - ahead));
  }
  assign_buffers(schedule);
  return schedule;
}

std::vector<PipelinePass> forward_schedule(const PipelineShape& shape) {
  std::vector<PipelinePass> schedule;
  for (int32_t first = 0; first < shape.micro_batches; first += shape.stages) {
    const int32_t count = std::min(shape.stages, shape.micro_batches - first);
    for (int32_t chunk = 0; chunk < shape.chunks; ++chunk) {
      for (int32_t i = 0; i < count; ++i) {
        schedule.push_back({.kind = PassKind::kForward,
                            .chunk = chunk,
                            .micro_batch = first + i,
                            .batch = shape.chunks == 1 ? 0 : i});
      }
    }
  }
  return schedule;
}

int32_t activation_slots(const PipelineShape& shape, int32_t stage) {
  int32_t slots = 0;
  for (const PipelinePass& pass : pipeline_schedule(shape, stage))
    slots = std::max(slots, pass.slot + 1);
  return slots;
}

double pipeline_bubble(const PipelineShape& shape) {
  const double idle = shape.stages - 1;
  return idle / (idle + static_cast<double>(shape.chunks) * shape.micro_batches);
}

PipelineShape pipeline_shape(const TrainConfig& config) {
  const int32_t stages = mesh_of(config.mesh).degree(MeshAxis::kPipeline);
  return {.stages = stages,
          .chunks = stages == 1 ? 1 : config.pipeline_repeats,
          .micro_batches = config.micro_batches()};
}

}  // namespace muster::trainer
