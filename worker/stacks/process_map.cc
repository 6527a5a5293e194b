#include "worker/stacks/process_map.h"

#include <elf.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include <absl/functional/function_ref.h>
#include <absl/strings/escaping.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/process/address.h"
#include "common/text/absl_view.h"
#include "worker/stacks/proc_files.h"

namespace muster::worker {
namespace {

constexpr size_t kMapsBytesMax = 16 << 20;  // the kernel's default bound is 65,530 mappings
constexpr size_t kModulesMax = 8192;
constexpr size_t kProgramHeadersMax = 128;             // linkers write about a dozen
constexpr size_t kProgramHeadersOffsetMax = 64 << 10;  // they follow the ELF header
constexpr size_t kNotesBytesMax = 4096;
constexpr size_t kBuildIdBytesMax = 64;  // SHA-1 has 20

struct MapLine {
  uint64_t start = 0;
  uint64_t end = 0;
  bool writable = false;
  bool executable = false;
  uint64_t offset = 0;
  uint64_t device = 0;
  uint64_t inode = 0;
  std::string_view path;
};

// Parses "7f00-7f10 r-xp 00001000 08:01 1234    /usr/lib/libc.so.6 (deleted)".
std::optional<MapLine> parse_map_line(absl::string_view line) {
  std::array<absl::string_view, 5> words;
  for (absl::string_view& word : words) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const size_t end = std::min(line.find(' '), line.size());
    word = line.substr(0, end);
    line.remove_prefix(end);
  }
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::pair<absl::string_view, absl::string_view> range = absl::StrSplit(words[0], '-');
  const std::pair<absl::string_view, absl::string_view> device = absl::StrSplit(words[3], ':');
  MapLine out{.writable = words[1].size() > 2 && words[1][1] == 'w',
              .executable = words[1].size() > 2 && words[1][2] == 'x',
              .path = sv(line)};
  uint64_t major = 0;
  uint64_t minor = 0;
  if (!absl::SimpleHexAtoi(range.first, &out.start) ||
      !absl::SimpleHexAtoi(range.second, &out.end) || !absl::SimpleHexAtoi(words[2], &out.offset) ||
      !absl::SimpleHexAtoi(device.first, &major) || !absl::SimpleHexAtoi(device.second, &minor) ||
      !absl::SimpleAtoi(words[4], &out.inode) || out.start >= out.end) {
    return std::nullopt;
  }
  out.device = major << 32 | minor;
  return out;
}

bool same_file(const MappedModule& module, const MapLine& line) {
  return module.device == line.device && module.inode == line.inode && module.path == line.path;
}

// Returns the build id in a segment of notes.
std::string build_id_of_notes(std::span<const std::byte> notes) {
  const auto padded = [](size_t size) { return (size + 3) & ~size_t{3}; };
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr header;
    std::memcpy(&header, notes.data(), sizeof(header));
    notes = notes.subspan(sizeof(header));
    const size_t name_bytes = padded(header.n_namesz);
    const size_t value_bytes = padded(header.n_descsz);
    if (name_bytes > notes.size() || value_bytes > notes.size() - name_bytes) return "";
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
        std::memcmp(notes.data(), "GNU", 4) == 0 && header.n_descsz <= kBuildIdBytesMax) {
      const auto* id = reinterpret_cast<const char*>(notes.data() + name_bytes);
      return absl::BytesToHexString(absl::string_view(id, header.n_descsz));
    }
    notes = notes.subspan(name_bytes + value_bytes);
  }
  return "";
}

// Reads at most so many bytes of a module at an address that also has a file offset; returns the
// number read.
using ModuleBytes = absl::FunctionRef<size_t(uint64_t address, uint64_t offset, void*, size_t)>;

std::optional<std::vector<Elf64_Phdr>> read_program_headers(ModuleBytes read, uint64_t start,
                                                            uint64_t& end) {
  Elf64_Ehdr header{};
  if (read(start, 0, &header, sizeof(header)) != sizeof(header)) return std::nullopt;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kProgramHeadersMax ||
      header.e_phoff > kProgramHeadersOffsetMax) {
    return std::nullopt;
  }
  std::vector<Elf64_Phdr> headers(header.e_phnum);
  const size_t bytes = headers.size() * sizeof(Elf64_Phdr);
  if (read(start + header.e_phoff, header.e_phoff, headers.data(), bytes) != bytes)
    return std::nullopt;
  end = std::max<uint64_t>(sizeof(header), header.e_phoff + bytes);
  return headers;
}

std::optional<ModuleHeaders> headers_of(const MappedModule& module, ModuleBytes read) {
  ModuleHeaders out;
  const auto headers = read_program_headers(read, module.start, out.bytes);
  if (!headers) return std::nullopt;
  bool placed = false;
  for (const Elf64_Phdr& header : *headers) {
    if (header.p_type != PT_LOAD) continue;
    // The first segment holds the file's beginning, where the module starts.
    if (!placed) out.load_bias = module.start - (header.p_vaddr - header.p_offset);
    placed = true;
    out.segments.push_back({.file_offset = header.p_offset,
                            .address = out.load_bias + header.p_vaddr,
                            .bytes = header.p_filesz});
  }
  if (!placed) return std::nullopt;
  for (const Elf64_Phdr& header : *headers) {
    if (header.p_type == PT_GNU_EH_FRAME) {
      out.unwind_header = out.load_bias + header.p_vaddr;
      out.unwind_header_bytes = header.p_filesz;
    }
    if (header.p_type != PT_NOTE || !out.build_id.empty()) continue;
    std::vector<std::byte> notes(std::min<uint64_t>(header.p_filesz, kNotesBytesMax));
    notes.resize(read(out.load_bias + header.p_vaddr, header.p_offset, notes.data(), notes.size()));
    out.build_id = build_id_of_notes(notes);
  }
  return out;
}

// Returns the range that contains `address`; nullptr: none.
template <class Range>
const Range* range_of(const std::vector<Range>& ranges, uint64_t address) {
  const auto after = std::ranges::upper_bound(ranges, address, {}, &Range::start);
  if (after == ranges.begin()) return nullptr;
  const Range& range = *std::prev(after);
  return address < range.end ? &range : nullptr;
}

}  // namespace

size_t read_memory(pid_t pid, uint64_t address, void* out, size_t size) {
  iovec local{out, size};
  iovec remote{pointer_at(address), size};
  const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

const ExecutableRange* ProcessMap::find(uint64_t address) const { return range_of(code, address); }

uint64_t ProcessMap::writable_end(uint64_t address) const {
  const MemoryRange* range = range_of(writable, address);
  return range == nullptr ? address : range->end;
}

ProcessMap parse_process_map(std::string_view maps) {
  ProcessMap map;
  MappedModule module;       // module of the current lines; end 0: none
  uint64_t last_offset = 0;  // offset of its latest line
  bool has_code = false;
  const auto finish = [&] {
    if (has_code && map.modules.size() < kModulesMax) map.modules.push_back(std::move(module));
    module = MappedModule{};
    has_code = false;
  };
  for (const absl::string_view text : absl::StrSplit(av(maps), '\n', absl::SkipEmpty())) {
    const auto line = parse_map_line(text);
    if (!line) continue;
    const bool is_vdso = line->path == "[vdso]";
    // Anonymous memory between a file's mappings is its zeroed data, or a gap left by the linker.
    // Segments of a small file share its first page, so another mapping from its beginning may be
    // the next segment.
    const bool continues = module.end != 0 && same_file(module, *line) &&
                           (line->offset != 0 || (line->start == module.end && last_offset == 0));
    if (continues) {
      module.end = line->end;
    } else if (line->inode != 0 || is_vdso) {
      finish();
      if (line->offset == 0) {
        module = MappedModule{.start = line->start,
                              .end = line->end,
                              .first_end = line->end,
                              .device = line->device,
                              .inode = line->inode,
                              .path = std::string(line->path)};
      }
    }
    if (module.end == line->end) last_offset = line->offset;
    if (line->writable) map.writable.push_back({.start = line->start, .end = line->end});
    if (!line->executable) continue;
    const bool inside =
        module.end != 0 && same_file(module, *line) && map.modules.size() < kModulesMax;
    has_code = has_code || inside;
    map.code.push_back({.start = line->start,
                        .end = line->end,
                        .module = inside ? static_cast<int32_t>(map.modules.size()) : -1});
  }
  finish();
  return map;
}

std::optional<ProcessMap> read_process_map(const std::string& proc_root, pid_t pid) {
  const auto maps = read_proc_file(absl::StrCat(proc_root, "/", pid, "/maps"), kMapsBytesMax);
  if (!maps || maps->empty()) return std::nullopt;  // empty: a zombie
  return parse_process_map(*maps);
}

std::optional<ModuleHeaders> read_module_headers(pid_t pid, const MappedModule& module) {
  return headers_of(module, [pid](uint64_t address, uint64_t, void* out, size_t size) {
    return read_memory(pid, address, out, size);
  });
}

std::optional<ModuleHeaders> read_file_headers(int fd, const MappedModule& module) {
  return headers_of(module, [fd](uint64_t, uint64_t offset, void* out, size_t size) -> size_t {
    const ssize_t got = pread(fd, out, size, static_cast<off_t>(offset));
    return got > 0 ? static_cast<size_t>(got) : 0;
  });
}

}  // namespace muster::worker
