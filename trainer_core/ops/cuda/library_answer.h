// What becomes of a call to a library that may have nothing for it, and what is told of what goes another way than it might.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>

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
  // An operation, by a literal, and its shape.
  using Key = std::pair<std::string_view, std::array<int64_t, 5>>;

  // "cuDNN"; `what` says "attention's backward pass of (B, S, H, K, h) = (1, 4096, 32, 8, 128)", and is asked for what is new alone: passes
  // come here with each of their layers.
  void add(std::string_view library, const Key& key, absl::FunctionRef<std::string()> what,
           const LibraryAnswer& answer, size_t has_bytes);
  void add(const std::string& line);
  std::vector<std::string> take() { return std::exchange(waiting_, {}); }

 private:
  // A model has tens of shapes.
  static constexpr size_t kToldMax = 256;

  std::set<Key> told_;
  std::set<std::string> told_lines_;
  std::vector<std::string> waiting_;
};

}  // namespace muster::trainer::cuda
