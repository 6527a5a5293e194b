// Reads a file of tests/golden/: a safetensors file with fp32 and int32 tensors. It does not
// validate the file.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/paths.h"

namespace muster::trainer {

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name) {
    std::ifstream file(source_dir() + "/tests/golden/" + name, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    header_ = nlohmann::json::parse(bytes.substr(sizeof(header_bytes), header_bytes));
    data_ = bytes.substr(sizeof(header_bytes) + header_bytes);
  }

  nlohmann::json metadata(const std::string& key) const {
    return nlohmann::json::parse(header_.at("__metadata__").at(key).get<std::string>());
  }
  template <class T>
  std::vector<T> tensor(const std::string& name) const {
    const auto offsets = header_.at(name).at("data_offsets").get<std::vector<size_t>>();
    std::vector<T> values((offsets[1] - offsets[0]) / sizeof(T));
    std::memcpy(values.data(), data_.data() + offsets[0], offsets[1] - offsets[0]);
    return values;
  }

 private:
  nlohmann::json header_;
  std::string data_;
};

}  // namespace muster::trainer
