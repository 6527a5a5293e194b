// Which algorithms a matrix library has chosen, on disk: so that a shape is computed alike in every run on a kind of device, and choosing
// takes no time. A text file that several processes may add to, a line each:
//
//   KEY<tab>ALGORITHM\n        128 hexadecimal digits: the library's 64 bytes, which it alone can read
//
// The key says the library's version, the device and the product. Lines that do not look so are passed over.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace muster::trainer::cuda {

using AlgorithmWords = std::array<uint64_t, 8>;

// One thread at a time. A file that cannot be read or written is none: choosing again costs little.
class AlgorithmFile {
 public:
  // `path` may be empty: then it remembers within the process alone.
  explicit AlgorithmFile(std::string path);

  std::optional<AlgorithmWords> find(const std::string& key) const;
  void add(const std::string& key, const AlgorithmWords& algorithm);

 private:
  // Lines that are read, and algorithms that are kept: many times the shapes of a model.
  static constexpr size_t kEntriesMax = 65'536;

  std::string path_;
  std::map<std::string, AlgorithmWords> known_;
};

}  // namespace muster::trainer::cuda
