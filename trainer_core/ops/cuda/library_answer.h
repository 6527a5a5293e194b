// What becomes of a call to a library that may have nothing for it, and what is told of what goes another way than it might.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::trainer::cuda {

struct LibraryAnswer {
  enum class Kind : uint8_t {
    kDone,    // or started
    kNoRoom,  // `needs_bytes` of workspace would do; nothing was started
    kNone     // it has nothing, and `why` says so; nothing was started
  };
  Kind kind = Kind::kDone;
  size_t needs_bytes = 0;
  std::string why{};

  bool is_done() const { return kind == Kind::kDone; }
};

// Lines about what a library did not take, each operation of a shape once, and others, each once, until somebody asks. One thread at a time.
class LibraryNotes {
 public:
  // "cuDNN", "attention backward of (B, S, H, K, h) = (1, 4096, 32, 8, 128)".
  void add(std::string_view library, const std::string& what, const LibraryAnswer& answer,
           size_t has_bytes);
  void add(const std::string& line);
  std::vector<std::string> take() { return std::exchange(waiting_, {}); }

 private:
  // A model has tens of shapes.
  static constexpr size_t kToldMax = 256;

  std::set<std::string> told_;
  std::vector<std::string> waiting_;
};

}  // namespace muster::trainer::cuda
