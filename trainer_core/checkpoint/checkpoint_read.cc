// Reading boxes: files are read in blocks, by several threads; each block is verified, and what is wanted of it copied.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/check.h"
#include "trainer_core/checkpoint/checkpoint.h"

namespace muster::trainer {
namespace {

// Descriptors that a read holds at a time: far below what a process usually may.
constexpr size_t kOpenFilesMax = 64;

// Enough to keep a disk busy while checksums are computed; more only take memory.
constexpr size_t kReadersMax = 4;

// What a stored box gives to a wanted one.
struct Copy {
  const StoredBox* stored;
  CommonRuns runs;
  float* to;  // where the wanted box begins
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

// A run's bytes in the file.
struct ByteRange {
  uint64_t begin, end;
};
ByteRange bytes_of_run(const Copy& copy, int64_t run) {
  const uint64_t begin =
      copy.stored->at + static_cast<uint64_t>(copy.runs.at(run).from) * sizeof(float);
  return {begin, begin + static_cast<uint64_t>(copy.runs.length()) * sizeof(float)};
}

// The first run with bytes at `byte` or behind it.
int64_t first_run(const Copy& copy, uint64_t byte) {
  if (byte <= copy.stored->at) return 0;
  return copy.runs.first_behind(static_cast<int64_t>((byte - copy.stored->at) / sizeof(float)));
}

// Which blocks have something that is wanted.
std::set<size_t> wanted_blocks(const OpenFile& file) {
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

// Blocks begin at multiples of a number's size, and so do boxes: no number is in two blocks.
static_assert(kBlockBytes % sizeof(float) == 0);

void copy_block(const OpenFile& file, size_t index, std::span<const char> block) {
  const uint64_t begin = index * kBlockBytes;
  const uint64_t end = begin + block.size();
  for (const Copy& copy : file.copies) {
    for (int64_t run = first_run(copy, begin); run < copy.runs.count(); ++run) {
      const ByteRange range = bytes_of_run(copy, run);
      if (range.begin >= end) break;
      const uint64_t from = std::max(range.begin, begin);
      const uint64_t bytes = std::min(range.end, end) - from;
      float* to = copy.to + copy.runs.at(run).to + (from - range.begin) / sizeof(float);
      std::memcpy(to, block.data() + (from - begin), bytes);
    }
  }
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

// Threads take tasks in turns until one fails. The first failure in the files' order is the one to tell.
class Readers {
 public:
  explicit Readers(std::vector<Task> tasks) : tasks_(std::move(tasks)) {}

  absl::Status run() {
    std::vector<std::thread> threads;
    for (size_t i = 1; i < std::min(kReadersMax, tasks_.size()); ++i)
      threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
    return status_;
  }

 private:
  void work() {
    const std::unique_ptr<char[]> buffer = make_block();
    while (true) {
      const size_t task = next_++;
      if (task >= tasks_.size() || task > failed_) return;
      const auto& [file, index] = tasks_[task];
      const auto block = file->reader->read(index, buffer.get());
      if (block.ok()) {
        copy_block(*file, index, *block);
        continue;
      }
      const std::lock_guard lock(mutex_);
      if (task >= failed_) continue;
      failed_ = task;
      status_ = with_tensor(block.status(), *file, index);
    }
  }

  const std::vector<Task> tasks_;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> failed_{SIZE_MAX};
  std::mutex mutex_;
  absl::Status status_;
};

}  // namespace

absl::Status read_boxes(const Manifest& manifest, CheckpointPart part,
                        const std::vector<TensorBox>& boxes, std::span<float> block,
                        uint64_t* bytes_read) {
  std::multimap<std::string, const TensorBox*> wanted;
  for (const TensorBox& box : boxes) wanted.emplace(box.tensor, &box);
  std::vector<std::unique_ptr<OpenFile>> files;
  std::vector<Task> tasks;
  for (const StoredFile& stored : manifest.files) {
    if (stored.part != part) continue;
    auto file = std::make_unique<OpenFile>(OpenFile{&stored, nullptr, {}});
    for (const StoredBox& box : stored.boxes) {
      const auto [begin, end] = wanted.equal_range(box.box.tensor);
      for (auto want = begin; want != end; ++want) {
        MUSTER_CHECK(want->second->shape == box.box.shape) << box.box.tensor;
        if (!overlap(box.box, *want->second)) continue;
        file->copies.push_back(
            {&box, CommonRuns(box.box, *want->second), block.data() + want->second->offset});
      }
    }
    if (file->copies.empty()) continue;
    auto reader = BlockReader::open(manifest.info.folder, stored.name, stored.digest);
    if (!reader.ok()) return reader.status();
    file->reader = *std::move(reader);
    for (const size_t index : wanted_blocks(*file)) {
      tasks.push_back({file.get(), index});
      if (bytes_read != nullptr)
        *bytes_read += std::min<uint64_t>(kBlockBytes, stored.digest.bytes - index * kBlockBytes);
    }
    files.push_back(std::move(file));
    if (files.size() < kOpenFilesMax) continue;
    if (auto status = Readers(std::exchange(tasks, {})).run(); !status.ok()) return status;
    files.clear();
  }
  return Readers(std::move(tasks)).run();
}

}  // namespace muster::trainer
