// Free space of a file system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster {

// Returns the bytes that an unprivileged process may add to the file system of `path`, which must
// exist. Returns nullopt if the system reports no value: unknown does not mean full. Does not
// consider quotas. Thread-safe.
std::optional<uint64_t> free_space_bytes(const std::string& path);

// Describes how much space is missing after a write of `needed` bytes to a full disk: " (it takes
// 3.0 MiB and 1.0 MiB are free on that disk: 2.0 MiB are missing)". Returns "" if `free` does not
// explain the failure (a quota, or space was freed since).
std::string missing_room(std::optional<uint64_t> free, uint64_t needed);

}  // namespace muster
