#include "worker/stacks/unwinder.h"

#include <fcntl.h>
#include <libelf.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <elfutils/libdwfl.h>

#include "common/text/escape.h"
#include "worker/stacks/module_file.h"

namespace muster::worker {
namespace {

// Opens the worker's own program file, from which libdwfl reads the processor's rules: programs for
// other processors do not run here.
Elf* open_own_elf() {
  elf_version(EV_CURRENT);
  const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  Elf* elf = elf_begin(fd, ELF_C_READ, nullptr);
  if (elf != nullptr) elf_cntl(elf, ELF_C_FDREAD);
  close(fd);
  return elf;
}

}  // namespace

class Unwinder::Impl {
 public:
  Impl(std::string proc_root, pid_t pid, ModuleImages* images, std::optional<UserIds> user)
      : proc_root_(std::move(proc_root)), pid_(pid), images_(*images), user_(std::move(user)) {}
  ~Impl() { end_session(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  bool refresh() {
    auto map = read_process_map(proc_root_, pid_);
    if (!map) return false;
    use(*std::move(map));
    return true;
  }

  void use(ProcessMap map) {
    // Anonymous memory changes often; libdwfl only depends on the modules.
    const bool same = dwfl_ != nullptr && map.modules == map_.modules;
    if (!same) end_session();
    map_.code = std::move(map.code);
    map_.writable = std::move(map.writable);
    if (same) return;
    map_.modules = std::move(map.modules);
    begin_session();
  }

  Stack unwind(const ThreadCopy& thread, std::vector<StackModule>& modules) {
    Walk walk{.self = this, .modules = &modules, .stack = {}};
    thread_ = &thread;
    // 0: reached the first frame; DWARF_CB_ABORT: add_frame stopped; -1: tables are missing on the
    // way.
    const int end = attached_ ? dwfl_getthread_frames(dwfl_, thread.tid, &add_frame, &walk) : -1;
    thread_ = nullptr;
    if (walk.stack.frames.empty())
      walk.stack.frames.push_back(frame_at(thread.registers.instruction, modules));
    walk.stack.truncated = walk.stack.truncated || end < 0;
    std::ranges::reverse(walk.stack.frames);
    return std::move(walk.stack);
  }

  StackFrame frame_at(uint64_t address, std::vector<StackModule>& modules) {
    const ExecutableRange* range = map_.find(address);
    if (range == nullptr) return {.text = "[not mapped]"};
    if (range->module < 0) return {.text = "[jit]"};
    Module& module = modules_[static_cast<size_t>(range->module)];
    return {.module = module_index(identity(module), modules),
            .address = address - headers(module).load_bias,
            .text = {}};
  }

  const ProcessMap& map() const { return map_; }

 private:
  // A module's data beside its addresses: read when a frame needs it.
  struct Module {
    Impl* owner = nullptr;
    const MappedModule* mapped = nullptr;
    std::optional<ModuleHeaders> headers;
    std::shared_ptr<const ModuleImage> image;  // libdwfl reads it
  };
  struct Walk {
    Impl* self;
    std::vector<StackModule>* modules;
    Stack stack;  // innermost first
  };

  void begin_session() {
    modules_.clear();
    modules_.reserve(map_.modules.size());  // libdwfl holds their addresses
    for (const MappedModule& mapped : map_.modules)
      modules_.push_back({.owner = this, .mapped = &mapped, .headers = {}, .image = {}});
    static constexpr Dwfl_Callbacks kCallbacks = {.find_elf = &find_elf,
                                                  .find_debuginfo = &find_no_debuginfo,
                                                  .section_address = nullptr,
                                                  .debuginfo_path = nullptr};
    static constexpr Dwfl_Thread_Callbacks kThreads = {.next_thread = &next_thread,
                                                       .get_thread = &get_thread,
                                                       .memory_read = &read_stack,
                                                       .set_initial_registers = &set_registers,
                                                       .detach = nullptr,
                                                       .thread_detach = nullptr};
    dwfl_ = dwfl_begin(&kCallbacks);
    if (dwfl_ == nullptr) return;
    dwfl_report_begin(dwfl_);
    for (Module& module : modules_) {
      Dwfl_Module* reported = dwfl_report_module(dwfl_, module.mapped->path.c_str(),
                                                 module.mapped->start, module.mapped->end);
      if (reported == nullptr) continue;
      void** user = nullptr;
      dwfl_module_info(reported, &user, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
      *user = &module;
    }
    dwfl_report_end(dwfl_, nullptr, nullptr);
    own_elf_ = open_own_elf();
    attached_ = own_elf_ != nullptr && dwfl_attach_state(dwfl_, own_elf_, pid_, &kThreads, this);
  }

  void end_session() {
    if (dwfl_ != nullptr) dwfl_end(dwfl_);  // before the images that it reads
    if (own_elf_ != nullptr) elf_end(own_elf_);
    dwfl_ = nullptr;
    own_elf_ = nullptr;
    attached_ = false;
  }

  const ModuleHeaders& headers(Module& module) {
    if (module.headers) return *module.headers;
    module.headers = read_module_headers(pid_, *module.mapped);
    if (!module.headers) {
      const int fd = open_module_file(proc_root_, pid_, *module.mapped, "", user_);
      if (fd >= 0) module.headers = read_file_headers(fd, *module.mapped);
      if (fd >= 0) close(fd);
    }
    if (!module.headers) module.headers.emplace();
    return *module.headers;
  }

  StackModule identity(Module& module) {
    std::string path = escape_controls(module.mapped->path, Layout::kOneLine);
    // The end of a path is more specific than its beginning.
    if (path.size() > kModulePathBytesMax)
      path = absl::StrCat("…", path.substr(path.size() - kModulePathBytesMax + 3));
    return {.build_id = headers(module).build_id, .path = std::move(path)};
  }

  // --- libdwfl's callbacks; `arg` and the user's pointer are ours ---

  static int add_frame(Dwfl_Frame* frame, void* arg) {
    Walk& walk = *static_cast<Walk*>(arg);
    uint64_t address = 0;
    bool is_activation = false;
    if (!dwfl_frame_pc(frame, &address, &is_activation)) return DWARF_CB_ABORT;
    // A return address may belong to the next line, or to the next function if the call never
    // returns.
    if (!is_activation) --address;
    // A thread's first function has no caller; by frame pointers that is an address without code.
    const bool is_code = walk.self->map_.find(address) != nullptr;
    if (!is_code && !walk.stack.frames.empty()) {
      walk.stack.truncated = address + 1 != 0;
      return DWARF_CB_ABORT;
    }
    if (walk.stack.frames.size() == kStackDepthMax) {
      walk.stack.truncated = true;
      return DWARF_CB_ABORT;
    }
    walk.stack.frames.push_back(walk.self->frame_at(address, *walk.modules));
    return DWARF_CB_OK;
  }

  static int find_elf(Dwfl_Module*, void** user, const char*, Dwarf_Addr, char**, Elf** elf) {
    Module& module = *static_cast<Module*>(*user);
    Impl& self = *module.owner;
    const ModuleHeaders& headers = self.headers(module);
    const uid_t uid = self.user_ ? self.user_->uid : geteuid();
    module.image = self.images_.get(self.pid_, uid, headers);
    if (module.image != nullptr) {
      // The image is not written to: libelf converts in place only files of another byte order.
      *elf = elf_memory(const_cast<char*>(module.image->data()), module.image->size());
      return -1;
    }
    const int fd =
        open_module_file(self.proc_root_, self.pid_, *module.mapped, headers.build_id, self.user_);
    if (fd < 0) return -1;
    // Read instead of mapped: another process may truncate the file.
    *elf = elf_begin(fd, ELF_C_READ, nullptr);
    if (*elf != nullptr) return fd;
    close(fd);
    return -1;
  }

  // Tables in separate files cover the same code.
  static int find_no_debuginfo(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*,
                               const char*, GElf_Word, char**) {
    return -1;
  }

  static pid_t next_thread(Dwfl*, void* arg, void** thread_arg) {
    const ThreadCopy* thread = static_cast<Impl*>(arg)->thread_;
    if (*thread_arg != nullptr || thread == nullptr) return 0;
    *thread_arg = arg;
    return thread->tid;
  }

  static bool get_thread(Dwfl*, pid_t tid, void* arg, void** thread_arg) {
    const ThreadCopy* thread = static_cast<Impl*>(arg)->thread_;
    *thread_arg = arg;
    return thread != nullptr && thread->tid == tid;
  }

  static bool read_stack(Dwfl*, Dwarf_Addr address, Dwarf_Word* result, void* arg) {
    const ThreadCopy& thread = *static_cast<Impl*>(arg)->thread_;
    const uint64_t offset = address - thread.stack_address;
    if (address < thread.stack_address || thread.stack.size() < sizeof(*result) ||
        offset > thread.stack.size() - sizeof(*result)) {
      return false;
    }
    std::memcpy(result, thread.stack.data() + offset, sizeof(*result));
    return true;
  }

  static bool set_registers(Dwfl_Thread* thread, void* arg) {
    const Registers& registers = static_cast<Impl*>(arg)->thread_->registers;
    static_assert(sizeof(Dwarf_Word) == sizeof(uint64_t));
    const std::vector<Dwarf_Word> words(registers.dwarf.begin(), registers.dwarf.end());
    dwfl_thread_state_register_pc(thread, registers.instruction);
    return dwfl_thread_state_registers(thread, 0, kDwarfRegisters, words.data());
  }

  const std::string proc_root_;
  const pid_t pid_;
  ModuleImages& images_;
  const std::optional<UserIds> user_;
  ProcessMap map_;
  std::vector<Module> modules_;  // as map_.modules
  Dwfl* dwfl_ = nullptr;
  Elf* own_elf_ = nullptr;
  bool attached_ = false;
  const ThreadCopy* thread_ = nullptr;  // being unwound
};

Unwinder::Unwinder(std::string proc_root, pid_t pid, ModuleImages* images,
                   std::optional<UserIds> user)
    : impl_(std::make_unique<Impl>(std::move(proc_root), pid, images, std::move(user))) {}
Unwinder::~Unwinder() = default;

bool Unwinder::refresh() { return impl_->refresh(); }
void Unwinder::use(ProcessMap map) { impl_->use(std::move(map)); }

Unwinder::Stack Unwinder::unwind(const ThreadCopy& thread, std::vector<StackModule>& modules) {
  return impl_->unwind(thread, modules);
}

StackFrame Unwinder::frame_at(uint64_t address, std::vector<StackModule>& modules) {
  return impl_->frame_at(address, modules);
}

const ProcessMap& Unwinder::map() const { return impl_->map(); }

uint32_t module_index(const StackModule& module, std::vector<StackModule>& modules) {
  const auto index = std::ranges::find(modules, module) - modules.begin();
  if (index == std::ssize(modules)) modules.push_back(module);
  return static_cast<uint32_t>(index);
}

}  // namespace muster::worker
