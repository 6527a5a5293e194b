// Checks of JSON that a parser and its callers could not handle in reasonable time or stack.
#pragma once

#include <cstddef>
#include <string_view>

#include <absl/status/status.h>

namespace muster::trainer {

// The maximum nesting of lists and objects. Copies of a value recurse.
constexpr int kSampleNestingMax = 100;
// The maximum number of keys in an object. Objects that keep the order of their keys compare each
// key with all earlier ones.
constexpr size_t kSampleKeysMax = 4096;
// The maximum number of such comparisons in a sample.
constexpr size_t kKeyComparisonsMax = 64 << 20;

// Scans a JSON text once, without recursion. Returns InvalidArgument, which continues a sentence
// about the text ("nests …"), if it exceeds a limit. A text that is no JSON may pass.
absl::Status check_json_limits(std::string_view json);

}  // namespace muster::trainer
