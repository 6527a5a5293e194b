// An ELF file opened for its symbols: symbol tables, and DWARF in it or in its separate debug file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <elfutils/libdwfl.h>

#include "common/files/user_rights.h"
#include "common/stacks/stack_frame.h"
#include "common/time/time.h"

namespace muster::worker {

// The symbols of one ELF file.
class DebugFile {
 public:
  // Takes ownership of `fd`. Requires that the caller has checked the file's build id. Returns
  // nullptr if the ELF file is damaged. `path`: the file's path, beside which its separate debug
  // file is searched. `user`: whose rights that search has (module_file.h).
  static std::unique_ptr<DebugFile> open(int fd, std::string path, std::string debug_folder,
                                         const std::optional<UserIds>& user);
  ~DebugFile();
  DebugFile(const DebugFile&) = delete;
  DebugFile& operator=(const DebugFile&) = delete;

  // Returns the symbol of `address`, an address as in the file's symbol table, without the load
  // bias.
  FrameSymbol symbol(uint64_t address, Instant deadline);

  uint64_t bytes() const { return bytes_; }

 private:
  DebugFile(int fd, std::string path, std::string debug_folder, const std::optional<UserIds>& user);

  bool report();
  Dwarf_Die* unit_of(uint64_t address, Dwarf_Addr& bias, Instant deadline);
  void add_line(Dwarf_Die* unit, uint64_t address, FrameSymbol& symbol) const;

  static int find_elf(Dwfl_Module*, void** user, const char*, Dwarf_Addr, char**, Elf** elf);
  static int find_debug_file(Dwfl_Module*, void** user, const char*, Dwarf_Addr, const char*,
                             const char* link, GElf_Word crc, char** found);

  struct Code {
    uint64_t address = 0;
    uint64_t bytes = 0;
  };

  const int fd_;
  const std::string path_;
  const std::string debug_folder_;
  const std::optional<UserIds> user_;
  uint64_t bytes_ = 0;
  Elf* elf_ = nullptr;  // owned by libdwfl once is_handed_over_ is true
  bool is_handed_over_ = false;
  bool has_dwarf_ = false;
  std::vector<Code> code_;  // executable segments
  Dwfl* dwfl_ = nullptr;
  Dwfl_Module* module_ = nullptr;
};

}  // namespace muster::worker
