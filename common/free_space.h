// How much may still be written to a disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster {

// Bytes that a process without privileges may add to the file system of `path`, which exists. None when nobody knows:
// unknown is not full. Quotas are not in it. Any thread.
std::optional<uint64_t> free_space_bytes(const std::string& path);

// Of a disk that was full, where `needed` bytes were to go: " (it takes 3.0 MiB and 1.0 MiB are free on that disk: 2.0 MiB are
// missing)". Empty where `free` is not the reason: a quota, or somebody else has made room.
std::string missing_room(std::optional<uint64_t> free, uint64_t needed);

}  // namespace muster
