// A disk in memory for SQLite, which fails as real disks do. It counts its operations, so that a
// test can let each of them fail, and records which bytes would survive a power cut.
//
// A file has two contents: what the process reads, and what is durable. A write changes only the
// former, and a sync makes the file's writes durable. A power cut retains the durable content and
// any part of the later writes, in sectors and in any order. A failed sync may have lost any part
// of them, even if a later sync succeeds. A file that was created or deleted since the folder was
// synced may exist or not after a power cut. As in SQLite's own file system, the first sync of a
// journal or write-ahead log syncs the folder, and so does a deletion that requests it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <sqlite3.h>

namespace muster::coordinator {

enum class DiskFault {
  kNone,
  kIoError,     // EIO of any operation
  kFull,        // ENOSPC of a write, a sync, a truncation or a creation
  kShortWrite,  // a write stores its first half and reports ENOSPC
  kBusy,        // another process holds the lock
  kPowerCut,    // the machine stops before the operation
};

class FaultDisk {
 public:
  // Registers the disk as SQLite's default file system until it is destroyed. One at a time.
  explicit FaultDisk(uint64_t seed);
  ~FaultDisk();
  FaultDisk(const FaultDisk&) = delete;
  FaultDisk& operator=(const FaultDisk&) = delete;

  // Fails the operation with number `first` (from 0), and all later ones if `lasting`. An operation
  // that cannot have the fault succeeds.
  void fail_at(int64_t first, DiskFault fault, bool lasting);
  // Makes syncs succeed without an effect, as disks with a volatile cache that lie about it.
  void ignore_syncs() { ignores_syncs_ = true; }
  int64_t operations() const { return operations_; }
  int64_t faults() const { return faults_; }  // operations that failed
  bool is_cut() const { return is_cut_; }

  // Ends the process that uses the disk: its later operations change nothing. The disk retains all
  // writes, or after a power cut the durable content and a random part of the later writes.
  void kill_process();
  void cut_power();
  // Begins another process without faults.
  void restart();

  // The methods below are called by the file system's functions.
  struct Write {
    int64_t offset = 0;
    std::string bytes;     // empty: a truncation to `offset` bytes
    bool is_lost = false;  // a failed sync has lost it
  };
  struct File {
    std::string content;
    std::string durable;
    std::vector<Write> unsynced;
    bool exists = true;
    bool is_created = false;    // the creation is durable
    bool syncs_folder = false;  // its next sync does
    bool is_temporary = false;
    std::vector<std::unique_ptr<std::string>> shared_memory;
  };
  // Counts an operation. Returns the fault that it has.
  DiskFault next(bool takes_space, bool is_lock);
  File* open(const char* name, bool create, bool is_log);
  File* find(const char* name);
  void write(File& file, const char* bytes, size_t size, int64_t offset);
  void truncate(File& file, int64_t size);
  void sync(File& file);
  void lose_some(File& file);
  void remove(File& file, bool sync);
  bool is_dead() const { return is_dead_; }

 private:
  void sync_folder();
  bool coin() { return (random_() >> 11) % 2 == 0; }

  std::mt19937_64 random_;
  sqlite3_vfs vfs_{};
  sqlite3_vfs* earlier_ = nullptr;
  std::map<std::string, std::unique_ptr<File>> files_;
  std::vector<std::unique_ptr<File>> temporary_;
  int64_t operations_ = 0;
  int64_t faults_ = 0;
  int64_t first_fault_ = -1;
  DiskFault fault_ = DiskFault::kNone;
  bool lasts_ = false;
  bool ignores_syncs_ = false;
  bool is_cut_ = false;
  bool is_dead_ = false;
};

}  // namespace muster::coordinator
