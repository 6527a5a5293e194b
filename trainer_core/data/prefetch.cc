#include "trainer_core/data/prefetch.h"

#include <algorithm>
#include <utility>

#include <absl/memory/memory.h>

#include "common/stacks/self_stacks.h"

namespace muster::trainer {
namespace {

// The number of batches that are read ahead. With two, a slow read can take as long as two
// micro-batches.
constexpr size_t kBatchesAhead = 2;

}  // namespace

std::unique_ptr<Prefetcher> Prefetcher::start(std::unique_ptr<BatchSource> source,
                                              const BatchSequence& order) {
  auto prefetcher = absl::WrapUnique(new Prefetcher(std::move(source), order));
  prefetcher->thread_ = std::thread([self = prefetcher.get()] { self->run(); });
  return prefetcher;
}

Prefetcher::Prefetcher(std::unique_ptr<BatchSource> source, const BatchSequence& order)
    : source_(std::move(source)), order_(order) {
  const auto sequences = static_cast<size_t>(order.sequences);
  const size_t tokens = sequences * static_cast<size_t>(order.tokens);
  const size_t starts = sequences * static_cast<size_t>(order.starts);
  for (size_t i = 0; i < kBatchesAhead + 1; ++i) {
    auto slot = std::make_unique<Slot>();
    slot->buffers = {std::vector<int32_t>(tokens), std::vector<int32_t>(tokens),
                     std::vector<int32_t>(starts), std::vector<float>(tokens)};
    free_.push_back(std::move(slot));
  }
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_available_.notify_one();
  thread_.join();
}

absl::StatusOr<const BatchBuffers*> Prefetcher::take(const BatchPlace& place) {
  std::unique_lock lock(mutex_);
  if (current_ != nullptr) free_.push_back(std::move(current_));
  if (ahead_.empty() || ahead_.front()->place != place) {
    filled_.wait(lock, [&] { return filling_ == nullptr; });
    std::ranges::move(ahead_, std::back_inserter(free_));
    ahead_.clear();
  }
  BatchPlace next = ahead_.empty() ? place : order_.after(ahead_.back()->place);
  while (!free_.empty() && ahead_.size() < kBatchesAhead + 1) {
    ahead_.push_back(std::move(free_.back()));
    free_.pop_back();
    ahead_.back()->place = std::exchange(next, order_.after(next));
    ahead_.back()->filled = false;
  }
  work_available_.notify_one();
  filled_.wait(lock, [&] { return ahead_.front()->filled; });
  current_ = std::move(ahead_.front());
  ahead_.pop_front();
  if (!current_->status.ok()) return current_->status;
  return &current_->buffers;
}

bool Prefetcher::has_work() const {
  return std::ranges::any_of(ahead_, [](const auto& slot) { return !slot->filled; });
}

void Prefetcher::run() {
  const SelfStackThread answers;
  std::unique_lock lock(mutex_);
  while (true) {
    work_available_.wait(lock, [&] { return ending_ || has_work(); });
    if (ending_) return;
    filling_ = std::ranges::find_if(ahead_, [](const auto& slot) { return !slot->filled; })->get();
    lock.unlock();
    fill(*filling_);
    lock.lock();
    filling_->filled = true;
    filling_ = nullptr;
    filled_.notify_all();
  }
}

void Prefetcher::fill(Slot& slot) const {
  BatchBuffers& buffers = slot.buffers;
  slot.status = source_->fill(slot.place.first, slot.place.micro_batch * order_.sequences,
                              {buffers.tokens, buffers.targets, buffers.starts, buffers.weights});
}

}  // namespace muster::trainer
