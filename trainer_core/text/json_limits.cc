#include "trainer_core/text/json_limits.h"

#include <vector>

#include <absl/strings/str_cat.h>

namespace muster::trainer {

absl::Status check_json_limits(std::string_view json) {
  std::vector<size_t> keys;  // the keys so far of each list or object that is open
  size_t comparisons = 0;
  for (size_t at = 0; at < json.size(); ++at) {
    switch (json[at]) {
      case '"':
        for (++at; at < json.size() && json[at] != '"'; ++at) {
          if (json[at] == '\\') ++at;
        }
        break;
      case '[':
      case '{':
        if (keys.size() >= kSampleNestingMax) {
          return absl::InvalidArgumentError(
              absl::StrCat("nests lists and objects deeper than ", kSampleNestingMax, " levels"));
        }
        keys.push_back(0);
        break;
      case ']':
      case '}':
        if (!keys.empty()) keys.pop_back();
        break;
      case ':':
        if (keys.empty()) break;
        comparisons += keys.back();
        if (++keys.back() > kSampleKeysMax || comparisons > kKeyComparisonsMax) {
          return absl::InvalidArgumentError(
              absl::StrCat("has too many keys: an object may have ", kSampleKeysMax,
                           ", and all objects together so many that their order needs at most ",
                           kKeyComparisonsMax, " comparisons"));
        }
        break;
      default:
        break;
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::trainer
