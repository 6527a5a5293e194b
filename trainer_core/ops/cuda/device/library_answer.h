// The result of a library call that may not support a shape, and notes on the work that built-in
// kernels do instead.
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

// The result of one call.
struct LibraryAnswer {
  enum class Kind : uint8_t {
    kDone,  // the library has enqueued the work
    // The workspace is too small: the call needs `needs_bytes`. Nothing was enqueued.
    kNoRoom,
    // The library does not support the call, for the reason in `why`. Nothing was enqueued.
    kNone
  };
  Kind kind = Kind::kDone;
  size_t needs_bytes = 0;
  std::string why{};

  bool is_done() const { return kind == Kind::kDone; }
};

// Collects notes until take(). A note on work that a library did not do is added once per operation
// and shape; any other line is added once. Called by one thread at a time.
class LibraryNotes {
 public:
  // The operation, as a string literal, and its shape.
  using Key = std::pair<std::string_view, std::array<int64_t, 5>>;

  // `library` is, for example, "cuDNN". `what` returns, for example, "attention's backward pass of
  // (B, S, H, K, h) = (1, 4096, 32, 8, 128)". It is called only for a new key, because add() is
  // called in each layer of each pass.
  void add(std::string_view library, const Key& key, absl::FunctionRef<std::string()> what,
           const LibraryAnswer& answer, size_t has_bytes);
  void add(const std::string& line);
  std::vector<std::string> take() { return std::exchange(pending_, {}); }

 private:
  // Maximum number of notes; a model has tens of shapes.
  static constexpr size_t kNotesMax = 256;

  std::set<Key> noted_keys_;
  std::set<std::string> noted_lines_;
  std::vector<std::string> pending_;
};

}  // namespace muster::trainer::cuda
