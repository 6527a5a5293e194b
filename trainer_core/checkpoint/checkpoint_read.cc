// Reads boxes: files are read in blocks. While the next block is read, the previous one is verified
// and the requested data is copied from it.
#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/bf16.h"
#include "trainer_core/base/check.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/stored_tensor.h"

namespace muster::trainer {
namespace {

// The maximum number of files that are open at a time: far below the usual limit of a process.
constexpr size_t kOpenFilesMax = 64;

// The maximum number of threads that verify. Verification is faster than reading, except with the
// fastest disks.
constexpr size_t kVerifiersMax = 2;
// Maximum of blocks that are read but not yet verified.
constexpr size_t kBlocksAhead = 4;

// The copy from a stored box to a requested one.
struct Copy {
  const StoredBox* stored;
  CommonRuns runs;
  DType dtype;    // type of the requested box
  std::byte* to;  // begin of the requested box

  uint64_t stored_size() const { return dtype_bytes(stored->box.dtype); }
  std::byte* destination(int64_t element) const {
    return to + static_cast<size_t>(element) * dtype_bytes(dtype);
  }
};

struct OpenFile {
  const StoredFile* stored;
  std::unique_ptr<BlockReader> reader;
  std::vector<Copy> copies;
};

struct Task {
  const OpenFile* file;
  size_t block;
};

// The bytes of a run in the file.
struct ByteRange {
  uint64_t begin, end;
};
ByteRange bytes_of_run(const Copy& copy, int64_t run) {
  const uint64_t size = copy.stored_size();
  const uint64_t begin = copy.stored->at + static_cast<uint64_t>(copy.runs.at(run).from) * size;
  return {begin, begin + static_cast<uint64_t>(copy.runs.length()) * size};
}

// Returns the first run that has bytes at or after `byte`.
int64_t first_run(const Copy& copy, uint64_t byte) {
  if (byte <= copy.stored->at) return 0;
  return copy.runs.first_after(static_cast<int64_t>((byte - copy.stored->at) / copy.stored_size()));
}

// Returns the blocks that contain requested data.
std::set<size_t> requested_blocks(const OpenFile& file) {
  std::set<size_t> blocks;
  for (const Copy& copy : file.copies) {
    uint64_t byte = 0;
    for (int64_t run = first_run(copy, 0); run < copy.runs.count(); run = first_run(copy, byte)) {
      const ByteRange range = bytes_of_run(copy, run);
      const uint64_t first = std::max(range.begin, byte) / kBlockBytes;
      const uint64_t last = (range.end - 1) / kBlockBytes;
      for (uint64_t block = first; block <= last; ++block) blocks.insert(block);
      byte = (last + 1) * kBlockBytes;
    }
  }
  return blocks;
}

// Blocks and boxes begin at multiples of the element size, so no element is in two blocks.
static_assert(kBlockBytes % sizeof(float) == 0);

// Converts elements if the checkpoint's mu_dtype differs from the current one.
void convert_elements(const char* from, DType stored, std::byte* to, DType requested,
                      uint64_t bytes) {
  if (stored == requested) {
    std::memcpy(to, from, bytes);
  } else if (stored == DType::kBf16) {
    widen(from, StoredType::kBf16, {reinterpret_cast<float*>(to), bytes / sizeof(Bf16)});
  } else {
    narrow({reinterpret_cast<const float*>(from), bytes / sizeof(float)}, StoredType::kBf16,
           reinterpret_cast<char*>(to));
  }
}

void copy_block(const OpenFile& file, size_t index, std::span<const char> block) {
  const uint64_t begin = index * kBlockBytes;
  const uint64_t end = begin + block.size();
  for (const Copy& copy : file.copies) {
    for (int64_t run = first_run(copy, begin); run < copy.runs.count(); ++run) {
      const ByteRange range = bytes_of_run(copy, run);
      if (range.begin >= end) break;
      const uint64_t from = std::max(range.begin, begin);
      const uint64_t bytes = std::min(range.end, end) - from;
      const auto before = static_cast<int64_t>((from - range.begin) / copy.stored_size());
      convert_elements(block.data() + (from - begin), copy.stored->box.dtype,
                       copy.destination(copy.runs.at(run).to + before), copy.dtype, bytes);
    }
  }
}

// Returns the destination of a block if all of it is a contiguous part of one requested box, as
// most blocks of large tensors are; null otherwise.
char* destination_of_block(const OpenFile& file, size_t index) {
  const uint64_t begin = index * kBlockBytes;
  const uint64_t end = std::min(begin + kBlockBytes, file.stored->digest.bytes);
  char* destination = nullptr;
  for (const Copy& copy : file.copies) {
    const int64_t run = first_run(copy, begin);
    if (run >= copy.runs.count()) continue;
    const ByteRange range = bytes_of_run(copy, run);
    if (range.begin >= end) continue;
    if (destination != nullptr || range.begin > begin || range.end < end) return nullptr;
    if (copy.stored->box.dtype != copy.dtype) return nullptr;
    destination =
        reinterpret_cast<char*>(copy.destination(copy.runs.at(run).to)) + (begin - range.begin);
  }
  return destination;
}

absl::Status with_tensor(const absl::Status& status, const OpenFile& file, size_t block) {
  if (!absl::IsDataLoss(status)) return status;
  for (const Copy& copy : file.copies) {
    const int64_t run = first_run(copy, block * kBlockBytes);
    if (run < copy.runs.count() && bytes_of_run(copy, run).begin < (block + 1) * kBlockBytes)
      return absl::DataLossError(
          absl::StrCat(status.message(), " (tensor ", copy.stored->box.tensor, ")"));
  }
  return status;
}

// Reads files sequentially, in order, while other threads verify and copy. Sequential reads suit
// the read-ahead of disks: several concurrent readers took 1.5 times as long. The first failure in
// the order of the files ends the reading and is returned.
class Reading {
 public:
  explicit Reading(std::vector<Task> tasks) : tasks_(std::move(tasks)) {}

  absl::Status run() {
    std::vector<std::thread> verifiers;
    for (size_t i = 0; i < std::min(kVerifiersMax, tasks_.size()); ++i)
      verifiers.emplace_back([this] { verify(); });
    for (size_t task = 0; task < tasks_.size() && read(task); ++task) {
    }
    {
      const std::lock_guard lock(mutex_);
      all_read_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : verifiers) thread.join();
    return status_;
  }

 private:
  using Buffer = std::unique_ptr<char[]>;
  struct Block {
    size_t task;
    Buffer buffer;  // null if the bytes are already at their destination
    std::span<const char> bytes;
  };

  // Returns whether to continue.
  bool read(size_t task) {
    const auto& [file, index] = tasks_[task];
    char* to = destination_of_block(*file, index);
    Buffer buffer = acquire_buffer(/*needs_buffer=*/to == nullptr);
    if (buffer != nullptr) to = buffer.get();
    const auto bytes = file->reader->read(index, to);
    const std::lock_guard lock(mutex_);
    if (!bytes.ok()) fail(task, with_tensor(bytes.status(), *file, index));
    if (!status_.ok()) return false;
    blocks_.push_back({task, std::move(buffer), *bytes});
    changed_.notify_all();
    return true;
  }

  // Blocks until the number of blocks that are read but not verified is below the maximum.
  Buffer acquire_buffer(bool needs_buffer) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ahead_ < kBlocksAhead; });
    ++ahead_;
    if (!needs_buffer) return nullptr;
    if (free_.empty()) return make_block();
    Buffer buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
  }

  // Verifies blocks, on a thread of its own. Also verifies the blocks that were read before a
  // failure, because one of them may have an earlier failure.
  void verify() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return all_read_ || !blocks_.empty(); });
      if (blocks_.empty()) return;
      Block block = std::move(blocks_.front());
      blocks_.pop_front();
      lock.unlock();
      const auto& [file, index] = tasks_[block.task];
      const absl::Status status = file->reader->verify(index, block.bytes);
      if (status.ok() && block.buffer != nullptr) copy_block(*file, index, block.bytes);
      lock.lock();
      if (!status.ok()) fail(block.task, with_tensor(status, *file, index));
      if (block.buffer != nullptr) free_.push_back(std::move(block.buffer));
      --ahead_;
      changed_.notify_all();
    }
  }

  void fail(size_t task, absl::Status status) {
    if (task >= failed_) return;
    failed_ = task;
    status_ = std::move(status);
  }

  const std::vector<Task> tasks_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Block> blocks_;  // read, but not verified yet
  std::vector<Buffer> free_;
  size_t ahead_ = 0;  // blocks that are being read or are not verified yet
  bool all_read_ = false;
  size_t failed_ = SIZE_MAX;
  absl::Status status_;
};

}  // namespace

std::set<size_t> needed_files(const Manifest& manifest, const CheckpointLayout& layout) {
  using Held = std::multimap<std::string_view, const TensorBox*>;
  const auto by_tensor = [](const ShardedTensors& part) {
    Held held;
    for (const TensorBox& box : part.held) held.emplace(box.tensor, &box);
    return held;
  };
  const Held params = by_tensor(layout.params), state = by_tensor(layout.state);
  const auto needs = [](const Held& held, const StoredBox& stored) {
    const auto [begin, end] = held.equal_range(stored.box.tensor);
    return std::any_of(begin, end, [&](const auto& h) { return overlap(*h.second, stored.box); });
  };
  std::set<size_t> needed;
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const StoredFile& file = manifest.files[i];
    const Held& held = file.part == CheckpointPart::kModel ? params : state;
    if (std::ranges::any_of(file.boxes, [&](const StoredBox& box) { return needs(held, box); }))
      needed.insert(i);
  }
  return needed;
}

absl::Status read_boxes(const Manifest& manifest, CheckpointPart part,
                        const std::vector<TensorBox>& boxes, std::span<float> block,
                        uint64_t* bytes_read) {
  std::multimap<std::string, const TensorBox*> requested;
  for (const TensorBox& box : boxes) requested.emplace(box.tensor, &box);
  std::vector<std::unique_ptr<OpenFile>> files;
  std::vector<Task> tasks;
  for (const StoredFile& stored : manifest.files) {
    if (stored.part != part) continue;
    auto file = std::make_unique<OpenFile>(OpenFile{&stored, nullptr, {}});
    for (const StoredBox& box : stored.boxes) {
      const auto [begin, end] = requested.equal_range(box.box.tensor);
      for (auto request = begin; request != end; ++request) {
        MUSTER_CHECK(request->second->shape == box.box.shape) << box.box.tensor;
        if (!overlap(box.box, *request->second)) continue;
        Copy copy{&box, CommonRuns(box.box, *request->second), request->second->dtype,
                  reinterpret_cast<std::byte*>(block.data())};
        copy.to = copy.destination(request->second->offset);
        file->copies.push_back(std::move(copy));
      }
    }
    if (file->copies.empty()) continue;
    auto reader = BlockReader::open(manifest.info.folder, stored.name, stored.digest);
    if (!reader.ok()) return reader.status();
    file->reader = *std::move(reader);
    for (const size_t index : requested_blocks(*file)) {
      tasks.push_back({file.get(), index});
      if (bytes_read != nullptr)
        *bytes_read += std::min<uint64_t>(kBlockBytes, stored.digest.bytes - index * kBlockBytes);
    }
    files.push_back(std::move(file));
    if (files.size() < kOpenFilesMax) continue;
    if (auto status = Reading(std::exchange(tasks, {})).run(); !status.ok()) return status;
    files.clear();
  }
  return Reading(std::move(tasks)).run();
}

}  // namespace muster::trainer
