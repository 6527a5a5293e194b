#include "trainer_core/checkpoint/background_saver.h"

#include <algorithm>
#include <utility>

#include "common/stacks/self_stacks.h"
#include "trainer_core/base/check.h"

namespace muster::trainer {

BackgroundSaver::BackgroundSaver(const CheckpointStore& store, CheckpointLayout layout,
                                 const CheckpointBlocks& staging,
                                 std::function<void(const SaveOutcome&)> on_end,
                                 CheckpointPeers* peers, const DeviceMemory& memory)
    : store_(store),
      layout_(std::move(layout)),
      staging_(staging),
      on_end_(std::move(on_end)),
      peers_(peers),
      memory_(memory),
      thread_([this] { run(); }) {}

BackgroundSaver::~BackgroundSaver() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundSaver::begin(CheckpointInfo info, const CheckpointBlocks& source,
                            SaveCopy elsewhere) {
  const std::lock_guard lock(mutex_);
  MUSTER_CHECK(state_ == State::kIdle && source.params.size() == staging_.params.size() &&
               source.state.size() == staging_.state.size());
  info_ = std::move(info);
  source_ = source;
  elsewhere_ = std::move(elsewhere);
  state_ = State::kStaging;
  changed_.notify_all();
}

void BackgroundSaver::wait_staged() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ != State::kStaging; });
}

bool BackgroundSaver::is_saving() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kStaging || state_ == State::kWriting;
}

std::optional<SaveOutcome> BackgroundSaver::take() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kEnded) return std::nullopt;
  state_ = State::kIdle;
  return std::exchange(outcome_, {});
}

std::optional<SaveOutcome> BackgroundSaver::finish() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return state_ == State::kIdle || state_ == State::kEnded; });
  }
  return take();
}

void BackgroundSaver::enter(State state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  changed_.notify_all();
}

void BackgroundSaver::run() {
  const SelfStackThread answers;
  // Writes to all pages of the staging block once, because the kernel allocates a page at the first
  // write: it does so now, and not while an update waits for the copy. Not for a device, whose
  // staging block has its own allocation and may be restored into at this time.
  if (memory_.is_host()) {
    std::ranges::fill(staging_.params, 0.0F);
    std::ranges::fill(staging_.state, 0.0F);
  }
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock,
                    [this] { return state_ == State::kStaging || leaving_ || has_unpinned(); });
      if (state_ != State::kStaging && leaving_) return;
    }
    if (is_staging()) {
      save();
    } else {
      pin_piece();
    }
  }
}

bool BackgroundSaver::is_staging() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kStaging;
}

bool BackgroundSaver::has_unpinned() const {
  return !memory_.is_host() &&
         pinned_bytes_ < staging_.params.size_bytes() + staging_.state.size_bytes();
}

// Pins one piece, so that a save that begins meanwhile waits for at most one piece; it copies to
// the rest unpinned.
void BackgroundSaver::pin_piece() {
  constexpr size_t kPieceBytes = size_t{256} << 20;
  const size_t params = staging_.params.size_bytes();
  const bool of_params = pinned_bytes_ < params;
  const std::span<float> block = of_params ? staging_.params : staging_.state;
  const size_t at = of_params ? pinned_bytes_ : pinned_bytes_ - params;
  const size_t bytes = std::min(kPieceBytes, block.size_bytes() - at);
  memory_.pin_host(reinterpret_cast<std::byte*>(block.data()) + at, bytes);
  pinned_bytes_ += bytes;
}

void BackgroundSaver::save() {
  copy_state(memory_, source_, staging_);
  enter(State::kWriting);
  const Instant begin = monotonic_now();
  outcome_ = {.step = info_.step,
              .status = {},
              .notes = {},
              .written_in = {},
              .local = elsewhere_ != nullptr};
  outcome_.status = elsewhere_ != nullptr
                        ? elsewhere_(info_, staging_, outcome_.notes)
                        : store_.save(info_, layout_, staging_, outcome_.notes, peers_);
  outcome_.written_in = monotonic_now() - begin;
  on_end_(outcome_);
  enter(State::kEnded);
}

}  // namespace muster::trainer
