// How much may still be written to a disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster {

// Bytes that a process without privileges may add to the file system of `path`, which exists. None when nobody knows:
// unknown is not full. Quotas are not in it. Any thread.
std::optional<uint64_t> free_space_bytes(const std::string& path);

}  // namespace muster
