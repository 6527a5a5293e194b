#include "trainer_core/ops/cuda/device/library_answer.h"

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::trainer::cuda {

void LibraryNotes::add(std::string_view library, const Key& key,
                       absl::FunctionRef<std::string()> what, const LibraryAnswer& answer,
                       size_t has_bytes) {
  if (noted_keys_.size() >= kNotesMax || !noted_keys_.insert(key).second) return;
  constexpr int kMiB = 20;  // shift from bytes
  const std::string why =
      answer.kind == LibraryAnswer::Kind::kNoRoom
          ? absl::StrCat("it needs ", (answer.needs_bytes >> kMiB) + 1, " MiB of scratch, ",
                         has_bytes >> kMiB, " MiB are available")
          : answer.why;
  pending_.push_back(
      absl::StrCat("built-in kernels compute ", what(), " instead of ", av(library), ": ", why));
}

void LibraryNotes::add(const std::string& line) {
  if (noted_lines_.size() < kNotesMax && noted_lines_.insert(line).second) pending_.push_back(line);
}

}  // namespace muster::trainer::cuda
