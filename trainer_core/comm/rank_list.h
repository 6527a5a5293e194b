// Formats ranks for error messages: "rank 3", "ranks 1, 3". Internal to comm.
#pragma once

#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace muster::trainer {

template <class Ranks>
std::string rank_list(const Ranks& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

}  // namespace muster::trainer
