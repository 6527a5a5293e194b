// Two functions of newer versions of the C library, so that the C++ libraries of Debian 12 also run
// with glibc 2.34. The loader finds these ones first; they call those of the C library if it has
// them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint32_t (*own_arc4random)(void);
static int (*own_find_object)(void*, struct dl_find_object*);

__attribute__((constructor)) static void search_c_library(void) {
  own_arc4random = (uint32_t(*)(void))dlvsym(RTLD_NEXT, "arc4random", "GLIBC_2.36");
  own_find_object = (int (*)(void*, struct dl_find_object*))dlvsym(RTLD_NEXT, "_dl_find_object",
                                                                   "GLIBC_2.35");
}

// glibc 2.36. Used by std::random_device.
uint32_t arc4random(void) {
  if (own_arc4random != NULL) return own_arc4random();
  uint32_t value;
  while (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value)) {
    if (errno != EINTR) abort();
  }
  return value;
}

struct search {
  uintptr_t address;
  struct dl_find_object* result;
};

// Returns 1 if the address is in a loaded segment of the object.
static int find(struct dl_phdr_info* info, size_t size, void* argument) {
  (void)size;
  const struct search* const search = argument;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  const ElfW(Phdr)* frames = NULL;
  int is_inside = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const header = &info->dlpi_phdr[i];
    const uintptr_t first = info->dlpi_addr + header->p_vaddr, last = first + header->p_memsz;
    if (header->p_type == PT_GNU_EH_FRAME) frames = header;
    if (header->p_type != PT_LOAD) continue;
    if (first < begin) begin = first;
    if (last > end) end = last;
    if (search->address >= first && search->address < last) is_inside = 1;
  }
  if (!is_inside) return 0;
  memset(search->result, 0, sizeof(*search->result));
  search->result->dlfo_map_start = (void*)begin;
  search->result->dlfo_map_end = (void*)end;
  search->result->dlfo_eh_frame = frames == NULL ? NULL : (void*)(info->dlpi_addr + frames->p_vaddr);
  return 1;
}

// glibc 2.35. With it, libgcc finds the code that handles an exception. Without the loader's table,
// the search takes the loader's lock and some microseconds.
int _dl_find_object(void* address, struct dl_find_object* result) {
  if (own_find_object != NULL) return own_find_object(address, result);
  struct search search = {(uintptr_t)address, result};
  return dl_iterate_phdr(find, &search) == 1 && result->dlfo_eh_frame != NULL ? 0 : -1;
}
