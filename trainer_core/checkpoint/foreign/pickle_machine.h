// Interprets the subset of Python's pickle format that files of tensors use. A pickle is a program
// for a stack machine (Python's pickletools.py lists the instructions). In Python, two of the
// instructions call any function whose name is in the file, so a pickle can run any code. This
// interpreter calls nothing: a function is a name in a fixed table, and a call is a value that
// records the arguments. It rejects every other name, and every instruction except those of
// protocol 2 that build dictionaries, lists, tuples, numbers and texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// The maximum size of a pickle. That of Llama 3.1 405B has some 200 KB.
constexpr size_t kPickleBytesMax = size_t{16} << 20;

// The allowed functions, as "module name". A call of the first gives a dictionary, and a call of
// the second a tensor; the others are names of storage types and cannot be called.
constexpr std::string_view kPickleFunctions[] = {
    "collections OrderedDict", "torch._utils _rebuild_tensor_v2",
    "torch FloatStorage",      "torch HalfStorage",
    "torch BFloat16Storage",   "torch DoubleStorage",
    "torch LongStorage",       "torch IntStorage",
    "torch ShortStorage",      "torch CharStorage",
    "torch ByteStorage",       "torch BoolStorage"};

using PickleId = uint32_t;  // index of a value in Pickle::values

// A value of the pickle. The comments state the fields that a kind uses.
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
    kStorage,   // items: one, the tuple that describes it
    kTensor,    // items: one, the tuple of arguments
  };
  Kind kind = Kind::kNothing;
  int64_t number = 0;
  std::string_view text{};  // a part of the pickle's bytes
  std::vector<PickleId> items{};
};

// The result of a pickle. Values refer to each other by index, possibly in cycles. Their texts
// point into the bytes of the pickle.
struct Pickle {
  std::vector<PickleValue> values;
  PickleId root = 0;
  size_t end = 0;  // offset of the last instruction
};

// Interprets a pickle. Returns InvalidArgument with the byte and its content for any other function
// ("it calls posix system"), instruction or use of a function. Returns DataLoss for a truncated or
// inconsistent pickle. Allocates at most some hundred bytes per instruction, and at most a million
// values.
absl::StatusOr<Pickle> run_pickle(std::span<const char> pickle);

// Shortens a name from the file for an error message.
std::string shown_name(std::string_view text);

}  // namespace muster::trainer
