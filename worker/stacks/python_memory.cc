#include "worker/stacks/python_memory.h"

#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/stacks/stack_frame.h"
#include "worker/stacks/demangle.h"

namespace muster::worker {
namespace {

// Offsets in the structures of CPython 3.11 on 64-bit machines, which do not change between its
// patch releases (Include/internal/pycore_*.h, Include/cpython/*.h).
constexpr uint64_t kVersion = 0x030B;
constexpr uint64_t kRuntimeInterpreters = 40;
constexpr uint64_t kInterpreterNext = 0, kInterpreterThreads = 16;
constexpr uint64_t kThreadNext = 8, kThreadFrame = 56, kThreadNativeId = 160;
constexpr uint64_t kCurrentFrame = 8;  // in _PyCFrame
constexpr uint64_t kFrameCode = 32, kFramePrevious = 48, kFrameInstruction = 56;
constexpr uint64_t kCodeFirstLine = 72, kCodeFile = 112, kCodeName = 120, kCodeLines = 136,
                   kCodeInstructions = 184;
constexpr uint64_t kTextLength = 16, kTextState = 32, kAsciiData = 48, kCompactData = 72;
constexpr uint64_t kBytesSize = 16, kBytesData = 32;

constexpr int kInterpretersMax = 16;
constexpr uint64_t kTextMax = 4096, kLinesBytesMax = 1 << 20;
constexpr size_t kDynamicEntriesMax = 256, kChainMax = 4096;
// Totals of one read: the depth of all threads of one interpreter, and a KiB for each frame.
constexpr size_t kFramesMax = kThreadsPerRankMax * kStackDepthMax;
constexpr uint64_t kAllLinesBytesMax = uint64_t{64} << 20;

// Reads values of a process. After a failed read, all values are 0.
class Memory {
 public:
  explicit Memory(pid_t pid) : pid_(pid) {}

  template <class T>
  T value(uint64_t address) const {
    T result{};
    if (address == 0 || read_memory(pid_, address, &result, sizeof(T)) != sizeof(T)) return T{};
    return result;
  }
  uint64_t pointer(uint64_t address) const { return value<uint64_t>(address); }
  std::string bytes(uint64_t address, uint64_t size) const {
    std::string result(size, '\0');
    result.resize(read_memory(pid_, address, result.data(), size));
    return result;
  }

 private:
  pid_t pid_;
};

uint32_t gnu_hash(std::string_view name) {
  uint32_t hash = 5381;
  for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
  return hash;
}

// Finds exported symbols of a mapped module by its hash table, in memory only.
class Exports {
 public:
  Exports(const Memory& memory, const MappedModule& module, uint64_t load_bias)
      : memory_(memory), bias_(load_bias) {
    const auto header = memory.value<Elf64_Ehdr>(module.start);
    uint64_t dynamic = 0;
    for (int i = 0; i < header.e_phnum && i < 64; ++i) {
      const auto segment = memory.value<Elf64_Phdr>(module.start + header.e_phoff +
                                                    static_cast<uint64_t>(i) * sizeof(Elf64_Phdr));
      if (segment.p_type == PT_DYNAMIC) dynamic = segment.p_vaddr + load_bias;
    }
    for (size_t i = 0; dynamic != 0 && i < kDynamicEntriesMax; ++i) {
      const auto entry = memory.value<Elf64_Dyn>(dynamic + i * sizeof(Elf64_Dyn));
      if (entry.d_tag == DT_NULL) break;
      // The loader has relocated these addresses.
      if (entry.d_tag == DT_SYMTAB) symbols_ = entry.d_un.d_ptr;
      if (entry.d_tag == DT_STRTAB) names_ = entry.d_un.d_ptr;
      if (entry.d_tag == DT_GNU_HASH) hash_ = entry.d_un.d_ptr;
    }
  }

  // Returns the address of the symbol in memory; 0: there is none.
  uint64_t find(std::string_view name) const {
    if (symbols_ == 0 || names_ == 0 || hash_ == 0) return 0;
    const auto buckets = memory_.value<uint32_t>(hash_);
    const auto first = memory_.value<uint32_t>(hash_ + 4);
    const auto filters = memory_.value<uint32_t>(hash_ + 8);
    if (buckets == 0) return 0;
    const uint64_t bucket_table = hash_ + 16 + uint64_t{filters} * 8;
    const uint64_t chains = bucket_table + uint64_t{buckets} * 4;
    const uint32_t hash = gnu_hash(name);
    auto index = memory_.value<uint32_t>(bucket_table + uint64_t{hash % buckets} * 4);
    if (index < first) return 0;
    for (size_t steps = 0; steps < kChainMax; ++steps, ++index) {
      const auto chain = memory_.value<uint32_t>(chains + uint64_t{index - first} * 4);
      if ((chain | 1) == (hash | 1)) {
        const auto symbol =
            memory_.value<Elf64_Sym>(symbols_ + uint64_t{index} * sizeof(Elf64_Sym));
        if (memory_.bytes(names_ + symbol.st_name, name.size() + 1) == std::string(name) + '\0')
          return symbol.st_value == 0 ? 0 : symbol.st_value + bias_;
      }
      if ((chain & 1) != 0) break;
    }
    return 0;
  }

 private:
  const Memory& memory_;
  uint64_t bias_;
  uint64_t symbols_ = 0, names_ = 0, hash_ = 0;
};

void append_utf8(uint32_t point, std::string& text) {
  const auto put = [&](uint32_t bits) { text += static_cast<char>(bits); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6);
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | (point >> 18 & 7));
    put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

// Returns the text of a str object as UTF-8.
std::string text_of(const Memory& memory, uint64_t object) {
  if (object == 0) return "";
  const uint64_t length = memory.pointer(object + kTextLength);
  const auto state = memory.value<uint32_t>(object + kTextState);
  const uint32_t kind = state >> 2 & 7;
  const bool is_compact = (state >> 5 & 1) != 0, is_ascii = (state >> 6 & 1) != 0;
  if (!is_compact || length > kTextMax || (kind != 1 && kind != 2 && kind != 4)) return "";
  const std::string data =
      memory.bytes(object + (is_ascii ? kAsciiData : kCompactData), length * kind);
  if (is_ascii) return data;
  std::string text;
  for (size_t i = 0; i + kind <= data.size(); i += kind) {
    uint32_t point = 0;
    for (uint32_t byte = kind; byte-- > 0;)
      point = point << 8 | static_cast<unsigned char>(data[i + byte]);
    append_utf8(point, text);
  }
  return text;
}

// The rest of the time and the totals of one read. A program can link its structures in cycles, or
// have tables of any size.
struct Budget {
  Instant deadline;
  size_t frames = kFramesMax;
  uint64_t lines_bytes = kAllLinesBytesMax;

  bool is_spent() const { return frames == 0 || monotonic_now() >= deadline; }
};

// Returns the frame; without the rest of the budget for tables of lines, its line is the first one
// of its function.
StackFrame frame_of(const Memory& memory, uint64_t frame, uint64_t code, Budget& budget) {
  const uint64_t instruction = memory.pointer(frame + kFrameInstruction);
  const auto first_line = memory.value<int32_t>(code + kCodeFirstLine);
  const uint64_t lines = memory.pointer(code + kCodeLines);
  const uint64_t size = memory.pointer(lines + kBytesSize);
  int32_t line = first_line;
  if (lines != 0 && size <= std::min(kLinesBytesMax, budget.lines_bytes) &&
      instruction >= code + kCodeInstructions) {
    budget.lines_bytes -= size;
    const std::string table = memory.bytes(lines + kBytesData, size);
    const auto unit = static_cast<int64_t>((instruction - code - kCodeInstructions) / 2);
    if (const int32_t found = line_of_instruction(table, first_line, unit); found > 0) line = found;
  }
  return {.text = bounded_text(
              absl::StrCat(text_of(memory, memory.pointer(code + kCodeFile)), ":", line, " ",
                           text_of(memory, memory.pointer(code + kCodeName))),
              kFrameTextBytesMax)};
}

// Returns the frames of a thread, outermost first.
std::vector<StackFrame> frames_of(const Memory& memory, uint64_t thread, Budget& budget) {
  std::vector<StackFrame> frames;
  std::set<uint64_t> seen;
  uint64_t frame = memory.pointer(memory.pointer(thread + kThreadFrame) + kCurrentFrame);
  for (; frame != 0 && frames.size() < kStackDepthMax && !budget.is_spent() &&
         seen.insert(frame).second;
       frame = memory.pointer(frame + kFramePrevious)) {
    const uint64_t code = memory.pointer(frame + kFrameCode);
    if (code == 0) break;
    --budget.frames;
    frames.push_back(frame_of(memory, frame, code, budget));
  }
  std::ranges::reverse(frames);
  return frames;
}

// Reads the variable-length numbers of a location table.
class LocationReader {
 public:
  explicit LocationReader(std::string_view table) : table_(table) {}

  bool done() const { return at_ >= table_.size(); }
  uint32_t byte() { return done() ? 0 : static_cast<unsigned char>(table_[at_++]); }
  uint32_t number() {
    uint32_t value = 0;
    for (uint32_t shift = 0; shift < 32; shift += 6) {
      const uint32_t part = byte();
      value |= (part & 0x3F) << shift;
      if ((part & 0x40) == 0) break;
    }
    return value;
  }
  int32_t signed_number() {
    const uint32_t value = number();
    const auto size = static_cast<int32_t>(value >> 1);
    return (value & 1) != 0 ? -size : size;
  }

 private:
  std::string_view table_;
  size_t at_ = 0;
};

}  // namespace

int32_t line_of_instruction(std::string_view table, int32_t first_line, int64_t unit) {
  constexpr uint32_t kNoLine = 15, kLong = 14, kNoColumns = 13, kOneLine = 10;
  LocationReader reader(table);
  int64_t line = first_line, at = 0;
  while (!reader.done()) {
    const uint32_t head = reader.byte();
    const uint32_t code = head >> 3 & 15;
    at += (head & 7) + 1;
    if (code == kLong) {
      line += reader.signed_number();
      for (int i = 0; i < 3; ++i) reader.number();
    } else if (code == kNoColumns) {
      line += reader.signed_number();
    } else if (code >= kOneLine && code < kNoColumns) {
      line += code - kOneLine;
      reader.byte();
      reader.byte();
    } else if (code < kOneLine) {
      reader.byte();
    }
    if (unit < at)
      return code == kNoLine || line < 0 || line > INT32_MAX ? 0 : static_cast<int32_t>(line);
  }
  return 0;
}

PythonFrames read_python_threads(pid_t pid, uint64_t runtime, Instant deadline) {
  const Memory memory(pid);
  Budget budget{.deadline = deadline};
  PythonFrames threads;
  std::set<uint64_t> seen;
  uint64_t interpreter = memory.pointer(runtime + kRuntimeInterpreters);
  for (int i = 0; interpreter != 0 && i < kInterpretersMax && seen.insert(interpreter).second;
       ++i, interpreter = memory.pointer(interpreter + kInterpreterNext)) {
    uint64_t thread = memory.pointer(interpreter + kInterpreterThreads);
    for (size_t n = 0; thread != 0 && n < kThreadsPerRankMax && seen.insert(thread).second;
         ++n, thread = memory.pointer(thread + kThreadNext)) {
      if (budget.is_spent()) return threads;
      std::vector<StackFrame> frames = frames_of(memory, thread, budget);
      const auto tid = static_cast<pid_t>(memory.pointer(thread + kThreadNativeId));
      if (!frames.empty() && tid > 0) threads.emplace(tid, std::move(frames));
    }
  }
  return threads;
}

absl::StatusOr<PythonFrames> read_python_memory(pid_t pid, const ProcessMap& map,
                                                Instant deadline) {
  const Memory memory(pid);
  const auto late = absl::DeadlineExceededError("the interpreter's memory was not read in time");
  for (const MappedModule& module : map.modules) {
    if (monotonic_now() >= deadline) return late;
    if (!is_python_interpreter(module.path)) continue;
    const auto headers = read_module_headers(pid, module);
    if (!headers) continue;
    const Exports exports(memory, module, headers->load_bias);
    const uint64_t runtime = exports.find("_PyRuntime");
    if (runtime == 0) continue;
    // Exported since 3.11; 0x030B07F0 is 3.11.7.
    const uint64_t version = memory.pointer(exports.find("Py_Version")) >> 16;
    if (version != kVersion)
      return absl::UnimplementedError("only frames of Python 3.11 are read without py-spy");
    PythonFrames threads = read_python_threads(pid, runtime, deadline);
    if (threads.empty() && monotonic_now() >= deadline) return late;
    if (threads.empty()) return absl::UnavailableError("the interpreter has no frames");
    return threads;
  }
  return absl::UnavailableError("the interpreter's data was not found");
}

}  // namespace muster::worker
