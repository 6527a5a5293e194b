// For whoever makes folders and may have to take them back. Any thread.
#pragma once

#include <filesystem>
#include <vector>

namespace muster {

// The folders down to `path` that are not there, deepest first.
std::vector<std::filesystem::path> missing_folders(const std::filesystem::path& path);

// Those that have something in them stay.
void remove_empty(const std::vector<std::filesystem::path>& folders);

}  // namespace muster
