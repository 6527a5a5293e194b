#include "worker/stacks/module_image.h"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace muster::worker {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{16} << 30;    // address space, not memory
constexpr uint64_t kUnwindHeaderBytesMax = 256ULL << 20;  // 8 bytes per function
constexpr uint64_t kFramesBytesMax = 512ULL << 20;        // some 30 bytes per function
constexpr uint64_t kFramesChunkBytes = 256 << 10;

// Returns the segment that contains `address`; nullptr: none.
const ModuleHeaders::Segment* segment_of(const ModuleHeaders& headers, uint64_t address) {
  const auto found = std::ranges::find_if(headers.segments, [&](const auto& segment) {
    return address >= segment.address && address - segment.address < segment.bytes;
  });
  return found == headers.segments.end() ? nullptr : &*found;
}

}  // namespace

std::shared_ptr<const ModuleImage> ModuleImage::copy(pid_t pid, const ModuleHeaders& headers) {
  uint64_t size = headers.bytes;
  for (const ModuleHeaders::Segment& segment : headers.segments) {
    if (segment.file_offset > kFileBytesMax || segment.bytes > kFileBytesMax) return nullptr;
    size = std::max(size, segment.file_offset + segment.bytes);
  }
  if (headers.unwind_header == 0 || size == 0) return nullptr;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  const std::shared_ptr<ModuleImage> image(new ModuleImage(static_cast<char*>(memory), size));
  return image->fill(pid, headers) ? image : nullptr;
}

ModuleImage::~ModuleImage() { munmap(data_, size_); }

bool ModuleImage::fill(pid_t pid, const ModuleHeaders& headers) {
  const uint64_t start = headers.segments.front().address - headers.segments.front().file_offset;
  if (read_memory(pid, start, data_, headers.bytes) != headers.bytes) return false;
  // Section headers are not in memory.
  Elf64_Ehdr header;
  std::memcpy(&header, data_, sizeof(header));
  header.e_shoff = 0;
  header.e_shnum = 0;
  header.e_shstrndx = 0;
  std::memcpy(data_, &header, sizeof(header));

  struct {
    uint8_t version;
    uint8_t frames_encoding;
    uint8_t count_encoding;
    uint8_t table_encoding;
    int32_t frames;  // relative to its own address
  } unwind{};
  static_assert(sizeof(unwind) == 8);
  // DW_EH_PE_pcrel | DW_EH_PE_sdata4, the encoding that linkers write.
  constexpr uint8_t kRelativeSigned4 = 0x1b;
  if (headers.unwind_header_bytes > kUnwindHeaderBytesMax ||
      read_memory(pid, headers.unwind_header, &unwind, sizeof(unwind)) != sizeof(unwind) ||
      unwind.version != 1 || unwind.frames_encoding != kRelativeSigned4) {
    return false;
  }
  const uint64_t frames = headers.unwind_header + offsetof(decltype(unwind), frames) +
                          static_cast<int64_t>(unwind.frames);
  return copy_range(pid, headers, headers.unwind_header, headers.unwind_header_bytes) &&
         copy_frames(pid, headers, frames);
}

bool ModuleImage::copy_range(pid_t pid, const ModuleHeaders& headers, uint64_t address,
                             uint64_t size) {
  const ModuleHeaders::Segment* segment = segment_of(headers, address);
  if (segment == nullptr || size > segment->bytes - (address - segment->address)) return false;
  const uint64_t offset = segment->file_offset + (address - segment->address);
  return read_memory(pid, address, data_ + offset, size) == size;
}

// Copies entries of .eh_frame, each after its length, up to the one of length 0 or the segment's
// end: its size is not stored in memory.
bool ModuleImage::copy_frames(pid_t pid, const ModuleHeaders& headers, uint64_t address) {
  const ModuleHeaders::Segment* segment = segment_of(headers, address);
  if (segment == nullptr) return false;
  const uint64_t limit = std::min(segment->bytes - (address - segment->address), kFramesBytesMax);
  const char* const frames = data_ + segment->file_offset + (address - segment->address);
  uint64_t copied = 0;
  for (uint64_t entry = 0; entry + sizeof(uint32_t) <= limit;) {
    while (copied < entry + sizeof(uint32_t)) {
      const uint64_t chunk = std::min(kFramesChunkBytes, limit - copied);
      if (!copy_range(pid, headers, address + copied, chunk)) return copied > 0;
      copied += chunk;
    }
    uint32_t length = 0;
    std::memcpy(&length, frames + entry, sizeof(length));
    // All ones announce 64-bit lengths, which .eh_frame does not have in practice.
    if (length == 0 || length == ~uint32_t{0}) break;
    entry += sizeof(length) + length;
  }
  return true;
}

std::shared_ptr<const ModuleImage> ModuleImages::get(pid_t pid, uid_t user,
                                                     const ModuleHeaders& headers) {
  if (headers.build_id.empty()) return ModuleImage::copy(pid, headers);
  {
    const std::lock_guard lock(mutex_);
    if (auto image = images_[{user, headers.build_id}].lock()) return image;
  }
  // Copies without the lock, because reading a process may take long. Two concurrent calls make a
  // copy each; one is kept.
  auto image = ModuleImage::copy(pid, headers);
  const std::lock_guard lock(mutex_);
  std::erase_if(images_, [](const auto& entry) { return entry.second.expired(); });
  if (image != nullptr) images_[{user, headers.build_id}] = image;
  return image;
}

}  // namespace muster::worker
