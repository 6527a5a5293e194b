// The storage that storage_cases.cc tests.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "coordinator/shell/storage/storage.h"

namespace muster::coordinator {

class StorageUnderTest {
 public:
  // Returns an empty storage, whose SQLite file is `path`; null if this machine lacks what it
  // needs. Each test program has its own definition.
  static std::unique_ptr<StorageUnderTest> make(const std::string& path);
  virtual ~StorageUnderTest() = default;

  // Opens the storage. Requires that the one that was opened before is destroyed.
  virtual absl::StatusOr<std::unique_ptr<Storage>> open() = 0;
};

}  // namespace muster::coordinator
