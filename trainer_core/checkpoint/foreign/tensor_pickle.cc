#include "trainer_core/checkpoint/foreign/tensor_pickle.h"

#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/checkpoint/foreign/pickle_machine.h"
#include "trainer_core/checkpoint/stored_tensor.h"

namespace muster::trainer {
namespace {

// Maximum bytes of a tensor's or a storage's name.
constexpr size_t kNameBytesMax = 1024;

using Kind = PickleValue::Kind;
using Ids = std::vector<PickleId>;

// Interprets values as a tensor; returns false if they have another form.
class Reader {
 public:
  explicit Reader(const Pickle& pickle) : values_(pickle.values) {}

  bool is(const Ids& items, size_t index, Kind kind) const {
    return index < items.size() && values_[items[index]].kind == kind;
  }
  bool fill_sizes(const Ids& items, size_t index, std::vector<int64_t>& sizes) const {
    if (!is(items, index, Kind::kTuple)) return false;
    const Ids& numbers = values_[items[index]].items;
    if (numbers.size() > kDimensionsMax) return false;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!is(numbers, i, Kind::kInteger) || values_[numbers[i]].number < 0) return false;
      sizes.push_back(values_[numbers[i]].number);
    }
    return true;
  }
  bool fill_count(const Ids& items, size_t index, uint64_t& count) const {
    if (!is(items, index, Kind::kInteger) || values_[items[index]].number < 0) return false;
    count = static_cast<uint64_t>(values_[items[index]].number);
    return true;
  }
  // The arguments are (storage, offset, sizes, strides, requires_grad, hooks); a storage is
  // ("storage", type, key, device, elements).
  bool fill(const PickleValue& value, PickledTensor& tensor) const {
    const Ids& arguments = values_[value.items[0]].items;
    if (!is(arguments, 0, Kind::kStorage)) return false;
    const Ids& storage = values_[values_[arguments[0]].items[0]].items;
    if (!is(storage, 0, Kind::kText) || values_[storage[0]].text != "storage") return false;
    if (!is(storage, 1, Kind::kFunction) || !is(storage, 2, Kind::kText)) return false;
    const std::string_view type = values_[storage[1]].text;
    const std::string_view key = values_[storage[2]].text;
    if (!type.ends_with("Storage") || key.size() > kNameBytesMax) return false;
    tensor.storage_type = type.substr(type.find(' ') + 1);
    tensor.storage = key;
    return fill_count(storage, 4, tensor.storage_elements) &&
           fill_count(arguments, 1, tensor.offset) && fill_sizes(arguments, 2, tensor.shape) &&
           fill_sizes(arguments, 3, tensor.strides) && tensor.shape.size() == tensor.strides.size();
  }

 private:
  const std::vector<PickleValue>& values_;
};

}  // namespace

absl::StatusOr<std::map<std::string, PickledTensor>> read_tensor_pickle(
    std::span<const char> bytes) {
  const auto pickle = run_pickle(bytes);
  if (!pickle.ok()) return pickle.status();
  const auto refuse = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("byte ", pickle->end, ": ", what));
  };
  const PickleValue& root = pickle->values[pickle->root];
  if (root.kind != Kind::kDict) return refuse("it holds no dictionary of tensors");
  const Reader reader(*pickle);
  std::map<std::string, PickledTensor> tensors;
  for (size_t i = 0; i + 1 < root.items.size(); i += 2) {
    const PickleValue& key = pickle->values[root.items[i]];
    const PickleValue& value = pickle->values[root.items[i + 1]];
    if (key.kind != Kind::kText || value.kind != Kind::kTensor) continue;
    PickledTensor tensor;
    if (key.text.size() > kNameBytesMax || !reader.fill(value, tensor)) {
      return refuse(
          absl::StrCat("the arguments of tensor ", shown_name(key.text), " are none of a tensor"));
    }
    tensors.insert_or_assign(std::string(key.text), std::move(tensor));
  }
  return tensors;
}

}  // namespace muster::trainer
