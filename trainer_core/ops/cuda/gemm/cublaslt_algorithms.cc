#include "trainer_core/ops/cuda/gemm/cublaslt_algorithms.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <string_view>
#include <utility>

namespace muster::trainer::cuda {
namespace {

constexpr size_t kDigits = 16;  // per word
constexpr size_t kLineMax = 512;

std::optional<AlgorithmWords> parse(std::string_view digits) {
  AlgorithmWords words{};
  if (digits.size() != words.size() * kDigits) return std::nullopt;
  for (size_t i = 0; i < words.size(); ++i) {
    const char* const begin = digits.data() + i * kDigits;
    const auto [end, error] = std::from_chars(begin, begin + kDigits, words[i], 16);
    if (error != std::errc() || end != begin + kDigits) return std::nullopt;
  }
  return words;
}

std::string print(const AlgorithmWords& words) {
  constexpr std::string_view kHexadecimal = "0123456789abcdef";
  std::string digits;
  for (const uint64_t word : words)
    for (int shift = 60; shift >= 0; shift -= 4) digits += kHexadecimal[word >> shift & 15];
  return digits;
}

}  // namespace

AlgorithmFile::AlgorithmFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::ifstream file(path_);
  std::string line;
  for (size_t lines = 0; lines < kEntriesMax && std::getline(file, line); ++lines) {
    const size_t tab = line.rfind('\t');
    if (line.size() > kLineMax || tab == std::string::npos) continue;
    if (const auto words = parse(std::string_view(line).substr(tab + 1)))
      known_.insert_or_assign(line.substr(0, tab), *words);
  }
}

std::optional<AlgorithmWords> AlgorithmFile::find(const std::string& key) const {
  const auto found = known_.find(key);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void AlgorithmFile::add(const std::string& key, const AlgorithmWords& algorithm) {
  if (known_.size() >= kEntriesMax) return;
  known_.insert_or_assign(key, algorithm);
  if (path_.empty()) return;
  // A single short write with O_APPEND: the lines of other processes stay intact.
  const int file = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  const std::string line = key + '\t' + print(algorithm) + '\n';
  if (write(file, line.data(), line.size()) < 0) path_.clear();  // for example a full disk
  close(file);
}

}  // namespace muster::trainer::cuda
