#include "trainer_core/parallel/pipeline_schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "trainer_core/base/check.h"

namespace muster::trainer {
namespace {

// The number-th pass of its kind. Micro-batches go in groups of as many as there are stages through one chunk after the other.
PipelinePass pass(const PipelineShape& shape, PassKind kind, int32_t number) {
  if (shape.chunks == 1) return {kind, 0, number};
  const int32_t group = shape.virtual_stages();
  const int32_t chunk = number % group / shape.stages;
  return {.kind = kind,
          .chunk = kind == PassKind::kForward ? chunk : shape.chunks - 1 - chunk,
          .micro_batch = number / group * shape.stages + number % shape.stages};
}

// Forward passes before the first backward pass: until the first gradient can be back.
int32_t warm_up(const PipelineShape& shape, int32_t stage) {
  const int32_t behind = shape.stages - 1 - stage;
  return shape.chunks == 1 ? behind : 2 * behind + (shape.chunks - 1) * shape.stages;
}

// A forward pass takes the lowest slot that is free, and its backward pass frees it.
void assign_slots(std::vector<PipelinePass>& schedule) {
  std::map<std::pair<int32_t, int32_t>, int32_t> taken;  // by chunk and micro-batch
  std::vector<bool> busy;
  for (PipelinePass& pass : schedule) {
    const std::pair key{pass.chunk, pass.micro_batch};
    if (pass.kind == PassKind::kForward) {
      auto free = std::ranges::find(busy, false);
      if (free == busy.end()) free = busy.insert(busy.end(), false);
      *free = true;
      taken[key] = static_cast<int32_t>(free - busy.begin());
    }
    pass.slot = taken.at(key);
    if (pass.kind == PassKind::kBackward) busy[static_cast<size_t>(pass.slot)] = false;
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
  assign_slots(schedule);
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

}  // namespace muster::trainer
