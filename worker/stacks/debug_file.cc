#include "worker/stacks/debug_file.h"

#include <dwarf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <elfutils/libdw.h>

#include "worker/stacks/demangle.h"
#include "worker/stacks/module_file.h"

namespace muster::worker {
namespace {

uint64_t dwarf_bytes(Elf* elf) {
  size_t names = 0;
  if (elf_getshdrstrndx(elf, &names) != 0) return 0;
  uint64_t bytes = 0;
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr) continue;
    const char* name = elf_strptr(elf, names, header.sh_name);
    if (name != nullptr && absl::StartsWith(name, ".debug_")) bytes += header.sh_size;
  }
  return bytes;
}

// Returns the linkage name of a function's entry, or the plain name in C; nullptr: none. An inlined
// function refers to its abstract entry.
const char* function_name(Dwarf_Die* function) {
  Dwarf_Attribute attribute;
  for (const unsigned int name : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name}) {
    if (dwarf_attr_integrate(function, name, &attribute) == nullptr) continue;
    const char* text = dwarf_formstring(&attribute);
    if (text != nullptr) return text;
  }
  return nullptr;
}

// Returns the innermost function that was inlined at `address`; empty: none.
std::string inlined_function(Dwarf_Die* unit, uint64_t address) {
  Dwarf_Die* scopes = nullptr;
  const int count = dwarf_getscopes(unit, address, &scopes);
  if (count <= 0) return "";
  absl::Cleanup free_scopes = [&] { std::free(scopes); };
  for (int i = 0; i < count; ++i) {
    const int tag = dwarf_tag(&scopes[i]);
    if (tag == DW_TAG_subprogram) return "";
    if (tag != DW_TAG_inlined_subroutine) continue;
    const char* name = function_name(&scopes[i]);
    return name == nullptr ? "" : demangled(name, kFrameTextBytesMax / 2);
  }
  return "";
}

}  // namespace

std::unique_ptr<DebugFile> DebugFile::open(int fd, std::string path, std::string debug_folder,
                                           const std::optional<UserIds>& user) {
  std::unique_ptr<DebugFile> file(
      new DebugFile(fd, std::move(path), std::move(debug_folder), user));
  return file->report() ? std::move(file) : nullptr;
}

DebugFile::DebugFile(int fd, std::string path, std::string debug_folder,
                     const std::optional<UserIds>& user)
    : fd_(fd), path_(std::move(path)), debug_folder_(std::move(debug_folder)), user_(user) {
  elf_version(EV_CURRENT);
  // Read instead of mapped: another process may truncate the file.
  elf_ = elf_begin(fd_, ELF_C_READ, nullptr);
  struct stat status {};
  if (fstat(fd_, &status) == 0) bytes_ = static_cast<uint64_t>(status.st_size);
}

DebugFile::~DebugFile() {
  if (dwfl_ != nullptr) dwfl_end(dwfl_);
  if (!is_handed_over_) {
    if (elf_ != nullptr) elf_end(elf_);
    close(fd_);
  }
}

bool DebugFile::report() {
  size_t headers = 0;
  if (elf_ == nullptr || elf_kind(elf_) != ELF_K_ELF || elf_getphdrnum(elf_, &headers) != 0)
    return false;
  uint64_t start = 0;
  uint64_t end = 0;
  for (size_t i = 0; i < headers; ++i) {
    GElf_Phdr header;
    if (gelf_getphdr(elf_, static_cast<int>(i), &header) == nullptr) return false;
    if (header.p_type != PT_LOAD) continue;
    // Counts as libdwfl does: the base is the file's own, so that addresses have no bias.
    if (end == 0) start = header.p_vaddr & -std::max<uint64_t>(header.p_align, 1);
    end = std::max(end, header.p_vaddr + header.p_memsz);
    if ((header.p_flags & PF_X) != 0) code_.push_back({header.p_vaddr, header.p_memsz});
  }
  static constexpr Dwfl_Callbacks kCallbacks = {.find_elf = &find_elf,
                                                .find_debuginfo = &find_debug_file,
                                                .section_address = nullptr,
                                                .debuginfo_path = nullptr};
  dwfl_ = dwfl_begin(&kCallbacks);
  if (dwfl_ == nullptr || start >= end) return false;
  dwfl_report_begin(dwfl_);
  module_ = dwfl_report_module(dwfl_, path_.c_str(), start, end);
  dwfl_report_end(dwfl_, nullptr, nullptr);
  if (module_ == nullptr) return false;
  void** user = nullptr;
  dwfl_module_info(module_, &user, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
  *user = this;
  has_dwarf_ = dwarf_bytes(elf_) <= kDebugFileBytesMax;
  GElf_Addr bias = 0;
  return dwfl_module_getelf(module_, &bias) != nullptr;
}

FrameSymbol DebugFile::symbol(uint64_t address, Instant deadline) {
  FrameSymbol symbol;
  // Symbols elsewhere are the linker's marks, which would name unrelated code after them.
  const bool is_code = std::ranges::any_of(code_, [&](const Code& code) {
    return address >= code.address && address - code.address < code.bytes;
  });
  if (!is_code) return symbol;
  GElf_Off offset = 0;
  GElf_Sym entry{};
  const char* name =
      dwfl_module_addrinfo(module_, address, &offset, &entry, nullptr, nullptr, nullptr);
  // The nearest symbol before the address may end before it.
  if (name != nullptr && (entry.st_size == 0 || offset < entry.st_size))
    symbol.function = demangled(name, kFrameTextBytesMax);
  if (!has_dwarf_) return symbol;
  Dwarf_Addr bias = 0;
  Dwarf_Die* unit = unit_of(address, bias, deadline);
  if (unit == nullptr) return symbol;
  const std::string inlined = inlined_function(unit, address - bias);
  if (!inlined.empty() && inlined != symbol.function) {
    symbol.function = bounded_text(
        symbol.function.empty() ? inlined : absl::StrCat(inlined, " inlined in ", symbol.function),
        kFrameTextBytesMax);
  }
  add_line(unit, address - bias, symbol);
  return symbol;
}

// Returns the compilation unit of the code; not every compiler writes the table that maps it.
Dwarf_Die* DebugFile::unit_of(uint64_t address, Dwarf_Addr& bias, Instant deadline) {
  Dwarf_Die* unit = dwfl_module_addrdie(module_, address, &bias);
  if (unit != nullptr) return unit;
  while ((unit = dwfl_module_nextcu(module_, unit, &bias)) != nullptr) {
    if (dwarf_haspc(unit, address - bias) == 1) return unit;
    if (monotonic_now() >= deadline) break;
  }
  return nullptr;
}

void DebugFile::add_line(Dwarf_Die* unit, uint64_t address, FrameSymbol& symbol) const {
  Dwarf_Line* line = dwarf_getsrc_die(unit, address);
  int number = 0;
  if (line == nullptr || dwarf_lineno(line, &number) != 0 || number <= 0) return;
  const char* file = dwarf_linesrc(line, nullptr, nullptr);
  if (file == nullptr) return;
  symbol.file = bounded_text(file, kFrameTextBytesMax);
  symbol.line = number;
}

int DebugFile::find_elf(Dwfl_Module*, void** user, const char*, Dwarf_Addr, char**, Elf** elf) {
  auto* self = static_cast<DebugFile*>(*user);
  self->is_handed_over_ = true;
  *elf = self->elf_;
  return self->fd_;
}

int DebugFile::find_debug_file(Dwfl_Module* module, void** user, const char*, Dwarf_Addr,
                               const char*, const char* link, GElf_Word crc, char**) {
  const auto* self = static_cast<const DebugFile*>(*user);
  const unsigned char* id = nullptr;
  GElf_Addr where = 0;
  const int id_bytes = dwfl_module_build_id(module, &id, &where);
  const absl::string_view bytes(reinterpret_cast<const char*>(id),
                                id_bytes > 0 ? static_cast<size_t>(id_bytes) : 0);
  const int fd = open_debug_file(self->debug_folder_,
                                 {.path = self->path_,
                                  .build_id = absl::BytesToHexString(bytes),
                                  .name = link == nullptr ? "" : link,
                                  .crc = crc},
                                 self->user_);
  struct stat status {};
  if (fd < 0 ||
      (fstat(fd, &status) == 0 && static_cast<uint64_t>(status.st_size) <= kDebugFileBytesMax))
    return fd;
  close(fd);
  return -1;
}

}  // namespace muster::worker
