// Interprets Python's pickles as far as data requires. A pickle is a program for a stack machine
// (Python's pickletools.py lists its instructions), and two instructions call any Python function
// that the file names. Nothing is called here: a function is a name in a fixed table, and its call
// is a value that records the arguments. Any other name is an error, as is any instruction beyond
// those of protocol 2 that build dictionaries, lists, tuples, numbers and texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// Llama 3.1 405B's pickle has some 200 KB.
constexpr size_t kPickleBytesMax = size_t{16} << 20;

// "module name". Calling the first yields a dictionary, the second a tensor; the others name
// storage types and are not called.
constexpr std::string_view kPickleFunctions[] = {
    "collections OrderedDict", "torch._utils _rebuild_tensor_v2",
    "torch FloatStorage",      "torch HalfStorage",
    "torch BFloat16Storage",   "torch DoubleStorage",
    "torch LongStorage",       "torch IntStorage",
    "torch ShortStorage",      "torch CharStorage",
    "torch ByteStorage",       "torch BoolStorage"};

using PickleId = uint32_t;  // of a value

struct PickleValue {
  enum class Kind : uint8_t {
    kNothing,   // None, or a number with a fraction
    kBool,      // number
    kInteger,   // number
    kText,      // text
    kTuple,     // items
    kList,      // items
    kDict,      // items: key, value, key, value …
    kFunction,  // text: "module name", one of kPickleFunctions
    kStorage,   // items: one, the tuple that names it
    kTensor,    // items: one, the tuple of arguments
  };
  Kind kind = Kind::kNothing;
  int64_t number = 0;
  std::string_view text{};  // of the pickle
  std::vector<PickleId> items{};
};

// Values refer to each other by index, possibly in cycles, and their texts refer to the file.
struct Pickle {
  std::vector<PickleValue> values;
  PickleId root = 0;
  size_t end = 0;  // the byte of its last instruction
};

// InvalidArgument names the byte of the pickle and its content: another function ("it calls posix
// system"), another instruction, another use of a function. DataLoss for a truncated or
// inconsistent pickle. Allocates at most some hundred bytes per instruction, and at most a million
// values.
absl::StatusOr<Pickle> run_pickle(std::span<const char> pickle);

// Shortens a name from the file for an error.
std::string shown_name(std::string_view text);

}  // namespace muster::trainer
