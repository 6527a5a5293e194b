// Stores the algorithms that cuBLASLt has chosen in a file, so that every run on the same kind of
// device computes a shape in the same way and need not choose again. The file is text, with one
// line per entry; several processes may append to it.
//
//   KEY<tab>ALGORITHM\n        128 hexadecimal digits: cuBLASLt's opaque 64 bytes
//
// KEY contains the library's version, the device and the GEMM. Readers skip lines of another form.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace muster::trainer::cuda {

using AlgorithmWords = std::array<uint64_t, 8>;

// The algorithms in one file. A file that cannot be read or written counts as empty, because
// choosing again takes little time. Called by one thread at a time.
class AlgorithmFile {
 public:
  // Reads the file. If `path` is empty, algorithms are stored only in memory.
  explicit AlgorithmFile(std::string path);

  // Returns the algorithm of `key`; nullopt if there is none.
  std::optional<AlgorithmWords> find(const std::string& key) const;
  // Stores an algorithm in memory and appends it to the file.
  void add(const std::string& key, const AlgorithmWords& algorithm);

 private:
  // Maximum number of lines that are read and of algorithms that are stored: many times the number
  // of shapes in a model.
  static constexpr size_t kEntriesMax = 65'536;

  std::string path_;
  std::map<std::string, AlgorithmWords> known_;
};

}  // namespace muster::trainer::cuda
