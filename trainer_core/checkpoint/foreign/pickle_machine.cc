#include "trainer_core/checkpoint/foreign/pickle_machine.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <unordered_map>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/absl_view.h"

namespace muster::trainer {
namespace {

// The maximum number of values of a pickle: a hundred times that of the largest published models.
constexpr size_t kValuesMax = 1 << 20;

constexpr std::string_view kOrderedDict = kPickleFunctions[0];
constexpr std::string_view kRebuildTensor = kPickleFunctions[1];

using Kind = PickleValue::Kind;

class Machine {
 public:
  explicit Machine(std::span<const char> program) : program_(program) {}

  absl::Status run() {
    while (status_.ok() && !stopped_) {
      instruction_ = at_;
      if (at_ == program_.size()) {
        damaged("the pickle breaks off: it has no end");
      } else {
        execute(static_cast<unsigned char>(program_[at_++]));
      }
    }
    return status_;
  }

  // Returns the result after the run.
  absl::StatusOr<Pickle> take() {
    if (stack_.size() != 1) {
      damaged("values are left over at its end");
      return status_;
    }
    return Pickle{std::move(values_), stack_.front(), instruction_};
  }

 private:
  // Errors; the first one is stored
  // -----------------------------------------------------------------------------------------------

  void fail(absl::StatusCode code, std::string_view what) {
    if (status_.ok())
      status_ = absl::Status(code, absl::StrCat("byte ", instruction_, ": ", av(what)));
  }
  void damaged(std::string_view what) { fail(absl::StatusCode::kDataLoss, what); }
  void refuse(std::string_view what) { fail(absl::StatusCode::kInvalidArgument, what); }

  // Arguments of an instruction
  // -----------------------------------------------------------------------------------------------

  std::string_view take(uint64_t count) {
    if (count > program_.size() - at_) {
      damaged(absl::StrCat("an instruction needs ", count, " more bytes, and there are ",
                           program_.size() - at_));
      return {};
    }
    const std::string_view bytes(program_.data() + at_, count);
    at_ += count;
    return bytes;
  }
  // Reads a little-endian integer of up to 8 bytes.
  uint64_t take_unsigned(size_t count) {
    uint64_t value = 0;
    const std::string_view bytes = take(count);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  std::string_view take_line() {
    const std::string_view rest(program_.data() + at_, program_.size() - at_);
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) {
      damaged("a name has no end");
      return {};
    }
    at_ += end + 1;
    return rest.substr(0, end);
  }
  // Reads a two's complement number; the first byte is its length.
  int64_t take_long() {
    const size_t count = take_unsigned(1);
    if (count > sizeof(int64_t)) {
      refuse("a whole number has more than 64 bits");
      return 0;
    }
    uint64_t value = take_unsigned(count);
    if (count > 0 && count < sizeof(value) && (value >> (8 * count - 1)) != 0)
      value |= ~uint64_t{0} << (8 * count);
    return static_cast<int64_t>(value);
  }

  // The stack
  // -----------------------------------------------------------------------------------------------

  void push(PickleValue value) {
    if (values_.size() == kValuesMax) return refuse("the pickle has too many values");
    stack_.push_back(static_cast<PickleId>(values_.size()));
    values_.push_back(std::move(value));
  }
  // Values above the topmost mark belong to the instruction that pops the mark.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  bool has(size_t count) {
    if (stack_.size() - floor() >= count) return true;
    damaged("an instruction needs values that are missing");
    return false;
  }
  PickleId pop() {
    const PickleId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  // Removes the topmost `count` values and returns them.
  std::vector<PickleId> pop(size_t count) {
    std::vector<PickleId> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  // Removes the topmost mark and returns the values above it.
  std::vector<PickleId> pop_marked() {
    if (marks_.empty()) {
      damaged("an instruction needs a mark that is missing");
      return {};
    }
    const size_t count = stack_.size() - marks_.back();
    marks_.pop_back();
    return pop(count);
  }

  // Instructions
  // -----------------------------------------------------------------------------------------------

  void execute(unsigned char code);
  bool execute_constant(unsigned char code);
  bool execute_collection(unsigned char code);

  void tuple(size_t count) {
    if (has(count)) push({.kind = Kind::kTuple, .items = pop(count)});
  }
  void append(std::vector<PickleId> items, Kind kind) {
    if (!status_.ok() || !has(1)) return;
    PickleValue& target = values_[stack_.back()];
    if (target.kind != kind) return damaged("items are put into something that takes none");
    if (kind == Kind::kDict && items.size() % 2 != 0) return damaged("a key has no value");
    target.items.insert(target.items.end(), items.begin(), items.end());
  }
  void remember(uint64_t key) {
    if (has(1)) memo_[key] = stack_.back();
  }
  void recall(uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) return damaged("a value is read that was not stored");
    stack_.push_back(found->second);
  }

  void push_function_name() {
    const std::string_view module = take_line();
    const std::string_view name = take_line();
    if (!status_.ok()) return;
    const std::string full = absl::StrCat(av(module), " ", av(name));
    const std::string_view* const known = find_name(full);
    if (known == nullptr) {
      return refuse(
          absl::StrCat("it calls ", shown_name(full),
                       "; a file of weights has tensors alone, and nothing of it is run"));
    }
    push({.kind = Kind::kFunction, .text = *known});
  }
  static const std::string_view* find_name(std::string_view full) {
    const auto* const known =
        std::find(std::begin(kPickleFunctions), std::end(kPickleFunctions), full);
    return known == std::end(kPickleFunctions) ? nullptr : known;
  }

  // Computes the result of a call.
  void reduce() {
    if (!has(2)) return;
    const PickleId arguments = pop();
    const PickleValue& function = values_[pop()];
    if (function.kind != Kind::kFunction || values_[arguments].kind != Kind::kTuple)
      return refuse("it calls something that is no known function");
    if (function.text == kOrderedDict && values_[arguments].items.empty())
      return push({.kind = Kind::kDict});
    if (function.text == kRebuildTensor) return push({.kind = Kind::kTensor, .items = {arguments}});
    refuse(
        absl::StrCat("it calls ", av(function.text), " in a way that a file of weights does not"));
  }
  // Ignores an attribute of the dictionary (`_metadata`).
  void build() {
    if (!has(2)) return;
    pop();
    if (values_[stack_.back()].kind != Kind::kDict)
      refuse("it changes an object that is no dictionary");
  }
  void load_persistent() {
    if (!has(1)) return;
    const PickleId id = pop();
    if (values_[id].kind != Kind::kTuple)
      return refuse("a storage is named by something that is no tuple");
    push({.kind = Kind::kStorage, .items = {id}});
  }

  const std::span<const char> program_;
  size_t at_ = 0;           // the next byte
  size_t instruction_ = 0;  // begin of the current instruction
  bool stopped_ = false;
  absl::Status status_;
  std::vector<PickleValue> values_;
  std::vector<PickleId> stack_;
  std::vector<size_t> marks_;  // the stack's height at each mark
  std::unordered_map<uint64_t, PickleId> memo_;
};

// Executes instructions for None, booleans, numbers and texts. Returns false for any other
// instruction.
bool Machine::execute_constant(unsigned char code) {
  const auto integer = [this](int64_t number) { push({.kind = Kind::kInteger, .number = number}); };
  switch (code) {
    case 'N':
      push({});
      return true;
    case 0x88:
    case 0x89:
      push({.kind = Kind::kBool, .number = code == 0x88 ? 1 : 0});
      return true;
    case 'K':
      integer(static_cast<int64_t>(take_unsigned(1)));
      return true;
    case 'M':
      integer(static_cast<int64_t>(take_unsigned(2)));
      return true;
    case 'J':
      integer(static_cast<int32_t>(take_unsigned(4)));
      return true;
    case 0x8a:
      integer(take_long());
      return true;
    case 'G':
      take(sizeof(double));
      push({});
      return true;
    case 'X':
      push({.kind = Kind::kText, .text = take(take_unsigned(4))});
      return true;
    default:
      return false;
  }
}

// Executes instructions for tuples, lists, dictionaries and their items. Returns false for any
// other instruction.
bool Machine::execute_collection(unsigned char code) {
  switch (code) {
    case '(':
      marks_.push_back(stack_.size());
      return true;
    case ')':
      tuple(0);
      return true;
    case 0x85:
    case 0x86:
    case 0x87:
      tuple(code - 0x84U);
      return true;
    case 't': {
      std::vector<PickleId> items = pop_marked();
      push({.kind = Kind::kTuple, .items = std::move(items)});
      return true;
    }
    case ']':
      push({.kind = Kind::kList});
      return true;
    case '}':
      push({.kind = Kind::kDict});
      return true;
    case 'a':
      if (has(2)) append(pop(1), Kind::kList);
      return true;
    case 'e':
      append(pop_marked(), Kind::kList);
      return true;
    case 's':
      if (has(3)) append(pop(2), Kind::kDict);
      return true;
    case 'u':
      append(pop_marked(), Kind::kDict);
      return true;
    default:
      return false;
  }
}

void Machine::execute(unsigned char code) {
  if (execute_constant(code) || execute_collection(code)) return;
  switch (code) {
    // The protocol's version; instructions of later versions are rejected when they occur.
    case 0x80:
      take(1);
      return;
    case 'q':
      return remember(take_unsigned(1));
    case 'r':
      return remember(take_unsigned(4));
    case 'h':
      return recall(take_unsigned(1));
    case 'j':
      return recall(take_unsigned(4));
    case 'c':
      return push_function_name();
    case 'R':
      return reduce();
    case 'b':
      return build();
    case 'Q':
      return load_persistent();
    case '.':
      stopped_ = true;
      return;
    default:
      refuse(absl::StrFormat(
          "instruction 0x%02x is none that a dictionary of tensors has (pickle protocol 2)", code));
  }
}

}  // namespace

absl::StatusOr<Pickle> run_pickle(std::span<const char> pickle) {
  if (pickle.size() > kPickleBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("byte 0: the pickle has ", pickle.size(),
                                                   " bytes, but may have at most ",
                                                   kPickleBytesMax));
  }
  Machine machine(pickle);
  if (auto status = machine.run(); !status.ok()) return status;
  return machine.take();
}

std::string shown_name(std::string_view text) {
  constexpr size_t kShownBytesMax = 80;
  return absl::StrCat(av(text.substr(0, kShownBytesMax)), text.size() > kShownBytesMax ? "…" : "");
}

}  // namespace muster::trainer
