#include "tests/unit/coordinator/shell/storage/fault_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace muster::coordinator {
namespace {

// The unit in which a power cut tears writes.
constexpr size_t kSectorBytes = 512;

// The open file of SQLite. SQLite allocates it and calls its methods.
struct Handle {
  sqlite3_file base;
  FaultDisk* disk;
  FaultDisk::File* file;
};

Handle& handle_of(sqlite3_file* file) { return *reinterpret_cast<Handle*>(file); }

// Returns the result of an operation with the fault, and sets the system's error.
int result_of(DiskFault fault, int io_error) {
  errno = fault == DiskFault::kFull || fault == DiskFault::kShortWrite ? ENOSPC : EIO;
  return io_error;
}

void apply_to(std::string& content, const FaultDisk::Write& write) {
  const auto offset = static_cast<size_t>(write.offset);
  if (write.bytes.empty()) {
    content.resize(std::min(content.size(), offset));
    return;
  }
  if (content.size() < offset + write.bytes.size()) content.resize(offset + write.bytes.size());
  content.replace(offset, write.bytes.size(), write.bytes);
}

int close_file(sqlite3_file*) { return SQLITE_OK; }

int read_file(sqlite3_file* file, void* bytes, int size, sqlite3_int64 offset) {
  Handle& handle = handle_of(file);
  if (handle.disk->next(false, false) != DiskFault::kNone)
    return result_of(DiskFault::kIoError, SQLITE_IOERR_READ);
  const std::string& content = handle.file->content;
  const size_t begin = std::min(static_cast<size_t>(offset), content.size());
  const size_t count = std::min(static_cast<size_t>(size), content.size() - begin);
  std::memcpy(bytes, content.data() + begin, count);
  if (count == static_cast<size_t>(size)) return SQLITE_OK;
  std::memset(static_cast<char*>(bytes) + count, 0, static_cast<size_t>(size) - count);
  return SQLITE_IOERR_SHORT_READ;
}

int write_file(sqlite3_file* file, const void* bytes, int size, sqlite3_int64 offset) {
  Handle& handle = handle_of(file);
  const auto* text = static_cast<const char*>(bytes);
  const DiskFault fault = handle.disk->next(true, false);
  if (fault == DiskFault::kShortWrite)
    handle.disk->write(*handle.file, text, static_cast<size_t>(size) / 2, offset);
  if (fault == DiskFault::kFull || fault == DiskFault::kShortWrite)
    return result_of(fault, SQLITE_FULL);
  if (fault != DiskFault::kNone) return result_of(fault, SQLITE_IOERR_WRITE);
  handle.disk->write(*handle.file, text, static_cast<size_t>(size), offset);
  return SQLITE_OK;
}

int truncate_file(sqlite3_file* file, sqlite3_int64 size) {
  Handle& handle = handle_of(file);
  const DiskFault fault = handle.disk->next(true, false);
  if (fault != DiskFault::kNone) return result_of(fault, SQLITE_IOERR_TRUNCATE);
  handle.disk->truncate(*handle.file, size);
  return SQLITE_OK;
}

int sync_file(sqlite3_file* file, int) {
  Handle& handle = handle_of(file);
  const DiskFault fault = handle.disk->next(true, false);
  if (fault == DiskFault::kNone) {
    handle.disk->sync(*handle.file);
    return SQLITE_OK;
  }
  if (fault != DiskFault::kPowerCut) handle.disk->lose_some(*handle.file);
  return result_of(fault, SQLITE_IOERR_FSYNC);
}

int size_of_file(sqlite3_file* file, sqlite3_int64* size) {
  Handle& handle = handle_of(file);
  if (handle.disk->next(false, false) != DiskFault::kNone)
    return result_of(DiskFault::kIoError, SQLITE_IOERR_FSTAT);
  *size = static_cast<sqlite3_int64>(handle.file->content.size());
  return SQLITE_OK;
}

int lock_file(sqlite3_file* file, int) {
  const DiskFault fault = handle_of(file).disk->next(false, true);
  if (fault == DiskFault::kBusy) return SQLITE_BUSY;
  return fault == DiskFault::kNone ? SQLITE_OK : result_of(fault, SQLITE_IOERR_LOCK);
}

int unlock_file(sqlite3_file*, int) { return SQLITE_OK; }

int check_reserved_lock(sqlite3_file*, int* result) {
  *result = 0;
  return SQLITE_OK;
}

int control_file(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
// As SQLite's file system for Linux assumes them.
int sector_size(sqlite3_file*) { return 4096; }
int characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

int map_memory(sqlite3_file* file, int region, int size, int extend, void volatile** memory) {
  Handle& handle = handle_of(file);
  *memory = nullptr;
  const DiskFault fault = handle.disk->next(true, false);
  if (fault != DiskFault::kNone) return result_of(fault, SQLITE_IOERR_SHMMAP);
  auto& regions = handle.file->shared_memory;
  while (std::ssize(regions) <= region) {
    if (extend == 0) return SQLITE_OK;
    regions.push_back(std::make_unique<std::string>(static_cast<size_t>(size), '\0'));
  }
  *memory = regions[static_cast<size_t>(region)]->data();
  return SQLITE_OK;
}

int lock_memory(sqlite3_file* file, int, int, int flags) {
  if ((flags & SQLITE_SHM_UNLOCK) != 0) return SQLITE_OK;
  const DiskFault fault = handle_of(file).disk->next(false, true);
  if (fault == DiskFault::kBusy) return SQLITE_BUSY;
  return fault == DiskFault::kNone ? SQLITE_OK : result_of(fault, SQLITE_IOERR_SHMLOCK);
}

void memory_barrier(sqlite3_file*) {}

int unmap_memory(sqlite3_file* file, int) {
  handle_of(file).file->shared_memory.clear();
  return SQLITE_OK;
}

const sqlite3_io_methods kMethods = {2,
                                     close_file,
                                     read_file,
                                     write_file,
                                     truncate_file,
                                     sync_file,
                                     size_of_file,
                                     lock_file,
                                     unlock_file,
                                     check_reserved_lock,
                                     control_file,
                                     sector_size,
                                     characteristics,
                                     map_memory,
                                     lock_memory,
                                     memory_barrier,
                                     unmap_memory,
                                     nullptr,
                                     nullptr};

constexpr int kLogs = SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL;

FaultDisk& disk_of(sqlite3_vfs* vfs) { return *static_cast<FaultDisk*>(vfs->pAppData); }

int open_file(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  FaultDisk& disk = disk_of(vfs);
  file->pMethods = nullptr;
  const bool creates = (flags & SQLITE_OPEN_CREATE) != 0;
  const DiskFault fault = disk.next(creates, false);
  if (fault != DiskFault::kNone) return result_of(fault, SQLITE_CANTOPEN);
  FaultDisk::File* found = disk.open(name, creates, (flags & kLogs) != 0);
  if (found == nullptr) return SQLITE_CANTOPEN;
  auto& handle = *reinterpret_cast<Handle*>(file);
  handle.disk = &disk;
  handle.file = found;
  handle.base.pMethods = &kMethods;
  if (out_flags != nullptr) *out_flags = flags;
  return SQLITE_OK;
}

int delete_file(sqlite3_vfs* vfs, const char* name, int sync) {
  FaultDisk& disk = disk_of(vfs);
  if (disk.next(false, false) != DiskFault::kNone)
    return result_of(DiskFault::kIoError, SQLITE_IOERR_DELETE);
  FaultDisk::File* file = disk.find(name);
  if (file == nullptr) return SQLITE_IOERR_DELETE_NOENT;
  disk.remove(*file, sync != 0);
  return SQLITE_OK;
}

int access_file(sqlite3_vfs* vfs, const char* name, int, int* result) {
  FaultDisk& disk = disk_of(vfs);
  if (disk.next(false, false) != DiskFault::kNone)
    return result_of(DiskFault::kIoError, SQLITE_IOERR_ACCESS);
  const FaultDisk::File* file = disk.find(name);
  *result = file != nullptr && !file->content.empty() ? 1 : 0;
  return SQLITE_OK;
}

int full_path(sqlite3_vfs*, const char* name, int size, char* path) {
  sqlite3_snprintf(size, path, "%s", name);
  return SQLITE_OK;
}

int fill_with_random_bytes(sqlite3_vfs*, int size, char* bytes) {
  std::memset(bytes, 7, static_cast<size_t>(size));
  return size;
}

int sleep_briefly(sqlite3_vfs*, int microseconds) { return microseconds; }

int last_error(sqlite3_vfs*, int, char*) { return errno; }

int current_time(sqlite3_vfs*, double* julian_day) {
  *julian_day = 2'460'000;
  return SQLITE_OK;
}

}  // namespace

FaultDisk::FaultDisk(uint64_t seed) : random_(seed) {
  vfs_.iVersion = 1;
  vfs_.szOsFile = sizeof(Handle);
  vfs_.mxPathname = 512;
  vfs_.zName = "muster-fault-disk";
  vfs_.pAppData = this;
  vfs_.xOpen = open_file;
  vfs_.xDelete = delete_file;
  vfs_.xAccess = access_file;
  vfs_.xFullPathname = full_path;
  vfs_.xRandomness = fill_with_random_bytes;
  vfs_.xSleep = sleep_briefly;
  vfs_.xCurrentTime = current_time;
  vfs_.xGetLastError = last_error;
  earlier_ = sqlite3_vfs_find(nullptr);
  sqlite3_vfs_register(&vfs_, 1);
}

FaultDisk::~FaultDisk() {
  sqlite3_vfs_unregister(&vfs_);
  sqlite3_vfs_register(earlier_, 1);
}

void FaultDisk::fail_at(int64_t first, DiskFault fault, bool lasting) {
  first_fault_ = operations_ + first;
  fault_ = fault;
  lasts_ = lasting;
}

DiskFault FaultDisk::next(bool takes_space, bool is_lock) {
  if (is_dead_) return DiskFault::kIoError;
  const int64_t number = operations_++;
  if (fault_ == DiskFault::kNone || number < first_fault_) return DiskFault::kNone;
  if (number > first_fault_ && !lasts_) return DiskFault::kNone;
  const bool is_of_space = fault_ == DiskFault::kFull || fault_ == DiskFault::kShortWrite;
  if ((is_of_space && !takes_space) || (fault_ == DiskFault::kBusy && !is_lock))
    return DiskFault::kNone;
  ++faults_;
  if (fault_ == DiskFault::kPowerCut) {
    is_cut_ = true;
    cut_power();
  }
  return fault_;
}

FaultDisk::File* FaultDisk::open(const char* name, bool create, bool is_log) {
  if (name == nullptr) {
    File& file = *temporary_.emplace_back(std::make_unique<File>());
    file.is_temporary = true;
    return &file;
  }
  std::unique_ptr<File>& file = files_[name];
  if (file == nullptr) {
    file = std::make_unique<File>();
    file->exists = false;
  }
  if (!file->exists && !create) return nullptr;
  if (!file->exists) file->syncs_folder = is_log;
  file->exists = true;
  return file.get();
}

FaultDisk::File* FaultDisk::find(const char* name) {
  const auto file = files_.find(name);
  return file == files_.end() || !file->second->exists ? nullptr : file->second.get();
}

void FaultDisk::write(File& file, const char* bytes, size_t size, int64_t offset) {
  if (size == 0) return;
  Write write{offset, std::string(bytes, size)};
  apply_to(file.content, write);
  if (!file.is_temporary) file.unsynced.push_back(std::move(write));
}

void FaultDisk::truncate(File& file, int64_t size) {
  const Write write{size, ""};
  apply_to(file.content, write);
  if (!file.is_temporary) file.unsynced.push_back(write);
}

void FaultDisk::sync(File& file) {
  if (ignores_syncs_) return;
  if (std::exchange(file.syncs_folder, false)) sync_folder();
  for (const Write& write : file.unsynced)
    if (!write.is_lost) apply_to(file.durable, write);
  file.unsynced.clear();
}

void FaultDisk::lose_some(File& file) {
  for (Write& write : file.unsynced) write.is_lost = write.is_lost || coin();
}

void FaultDisk::remove(File& file, bool sync) {
  file.exists = false;
  file.content.clear();
  file.unsynced.push_back({0, ""});
  if (sync && !ignores_syncs_) sync_folder();
}

void FaultDisk::sync_folder() {
  for (auto& [name, file] : files_) {
    file->is_created = file->exists;
    if (file->exists) continue;
    file->durable.clear();
    file->unsynced.clear();
  }
}

void FaultDisk::kill_process() { is_dead_ = true; }

void FaultDisk::cut_power() {
  is_dead_ = true;
  for (auto& [name, file] : files_) {
    std::string left = file->durable;
    for (const Write& write : file->unsynced) {
      if (write.is_lost) continue;
      if (write.bytes.empty()) {
        if (coin()) apply_to(left, write);
        continue;
      }
      for (size_t at = 0; at < write.bytes.size(); at += kSectorBytes) {
        if (!coin()) continue;
        apply_to(left,
                 {write.offset + static_cast<int64_t>(at), write.bytes.substr(at, kSectorBytes)});
      }
    }
    file->content = file->durable = left;
    file->unsynced.clear();
    // An unsynced creation or deletion may be lost. A file that exists again has its old content.
    if (!file->is_created) file->exists = file->exists && coin();
    if (!file->exists && file->is_created) file->exists = coin();
    if (!file->exists) {
      file->content.clear();
      file->durable.clear();
      file->is_created = false;
    }
  }
}

void FaultDisk::restart() {
  is_dead_ = is_cut_ = false;
  fault_ = DiskFault::kNone;
  for (auto& [name, file] : files_) file->shared_memory.clear();
  temporary_.clear();
}

}  // namespace muster::coordinator
