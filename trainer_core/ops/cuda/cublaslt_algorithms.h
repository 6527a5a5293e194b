// The algorithms that a matrix library has chosen, on disk: every run on the same kind of device
// computes a shape in the same way, and spends no time on choosing. A text file that several
// processes may append to, one line per entry:
//
//   KEY<tab>ALGORITHM\n        128 hexadecimal digits: the library's 64 bytes, opaque to us
//
// The key has the library's version, the device and the GEMM. Readers skip lines of any other form.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace muster::trainer::cuda {

using AlgorithmWords = std::array<uint64_t, 8>;

// Called by one thread at a time. A file that cannot be read or written counts as empty: choosing
// again costs little.
class AlgorithmFile {
 public:
  // `path` may be empty: then the algorithms are remembered only within the process.
  explicit AlgorithmFile(std::string path);

  std::optional<AlgorithmWords> find(const std::string& key) const;
  void add(const std::string& key, const AlgorithmWords& algorithm);

 private:
  // Bound on the lines read and the algorithms held: many times the number of shapes in a model.
  static constexpr size_t kEntriesMax = 65'536;

  std::string path_;
  std::map<std::string, AlgorithmWords> known_;
};

}  // namespace muster::trainer::cuda
