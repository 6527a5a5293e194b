// Recognizes files that stand in the place of others, so that an error states what is there and
// what to do: pointers of Git LFS and git-annex, web pages, interrupted downloads, dangling links,
// and the model formats of other programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/status.h>

namespace muster::trainer {

// The bytes from the beginning of a file by which it is recognized.
constexpr size_t kFileKindBytes = 1024;

// Returns up to kFileKindBytes of the file's first bytes; "" if it cannot be read.
std::string first_bytes(const std::string& path);

// Returns "this is a Git LFS pointer: run git lfs pull …" for a file that refers to data elsewhere,
// or names another program's format, a web page or an empty file, with the remedy; "" for a file of
// an unknown kind. `begins`: the first_bytes() of the file.
std::string foreign_file_problem(std::string_view begins, uint64_t file_bytes);

// Returns InvalidArgument "PATH: this is a Git LFS pointer: …" for a pointer of Git LFS or
// git-annex.
absl::Status check_no_pointer(const std::string& path, std::string_view begins,
                              uint64_t file_bytes);
// Returns InvalidArgument if a file begins as a web page, for files that cannot be one.
absl::Status check_no_web_page(const std::string& path, std::string_view begins);

// Returns the status of a failed open of `path`. For ENOENT the message states whether the path is
// a symbolic link whose target is missing, or an interrupted download is in its place.
absl::Status open_failure(int error, const std::string& path);

// Returns why the path's target is missing: "it is a symbolic link to …, which does not exist; …";
// "" if the path is not a dangling symbolic link.
std::string dangling_problem(const std::string& path);

// Returns whether the name is that of an unfinished download: `x.incomplete`, `x.part`, ….
bool is_unfinished_download(std::string_view name);

}  // namespace muster::trainer
