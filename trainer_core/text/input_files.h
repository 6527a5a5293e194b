// Finds the files of a corpus, their order, and their formats.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/named_values.h"

namespace muster::trainer {

enum class InputFormat { kText, kJsonLines, kTfRecord, kParquet };
constexpr ValueNames<4> kInputFormatNames = {"text", "jsonl", "tfrecord", "parquet"};

// More files than any data set in use has, and few enough to list in memory.
constexpr size_t kInputFilesMax = 1'000'000;

struct InputFile {
  std::string path;
  InputFormat format = InputFormat::kText;
  // Size and time when the list was made, to detect changes since then.
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
};

struct InputFiles {
  std::vector<InputFile> files;
  std::vector<std::string> ignored;  // files in the folders whose names have no known format
};

// Derives the format from the name's ending, without .gz and .zst; TFDS writes
// `c4-train.tfrecord-00000-of-01024`. nullopt for any other name.
std::optional<InputFormat> format_of(std::string_view path);

// Lists files in the given order. Folders are listed recursively, in natural order (part-2 before
// part-10), without hidden names. `forced` applies to all files; without it, a file that is named
// directly and has no known ending is text. Errors: NotFound, or InvalidArgument for a folder
// without any readable file; messages name the path.
absl::StatusOr<InputFiles> find_input_files(std::span<const std::string> paths,
                                            std::optional<InputFormat> forced);

// Returns the sum of the files' sizes.
uint64_t total_bytes(std::span<const InputFile> files);

}  // namespace muster::trainer
