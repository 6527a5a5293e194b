// Messages about tensors that a model needs and its files have in another form. Pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::trainer {

// Returns the tensor of scales or codes that a quantized matrix `name` has beside it; "" if there
// is none. `has` returns whether a tensor exists.
std::string packed_beside(const std::string& name,
                          const std::function<bool(const std::string&)>& has);

// Returns a clause that names what the files have in place of the missing tensor `name`, and the
// remedy; "" if there is nothing like it. `names`: the tensors of the files.
std::string in_place_of(const std::string& name, const std::vector<std::string>& names);

// Returns the remedy for a tensor that is stored in a type which is not read.
std::string_view remedy_of_type(std::string_view dtype);

}  // namespace muster::trainer
