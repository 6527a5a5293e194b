#include "trainer_core/ops/cuda/library_answer.h"

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"

namespace muster::trainer::cuda {

void LibraryNotes::add(std::string_view library, const Key& key,
                       absl::FunctionRef<std::string()> what, const LibraryAnswer& answer,
                       size_t has_bytes) {
  if (told_.size() >= kToldMax || !told_.insert(key).second) return;
  constexpr int kMiB = 20;  // of bits
  const std::string why = answer.kind == LibraryAnswer::Kind::kNoRoom
                              ? absl::StrCat("it needs ", (answer.needs_bytes >> kMiB) + 1,
                                             " MiB of scratch, ", has_bytes >> kMiB, " are there")
                              : answer.why;
  waiting_.push_back(
      absl::StrCat("own kernels compute ", what(), ", and not ", av(library), ": ", why));
}

void LibraryNotes::add(const std::string& line) {
  if (told_lines_.size() < kToldMax && told_lines_.insert(line).second) waiting_.push_back(line);
}

}  // namespace muster::trainer::cuda
