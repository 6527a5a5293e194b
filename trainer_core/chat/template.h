// Templates in the subset of Jinja that Hugging Face's chat templates use, with the settings that
// transformers uses: trim_blocks, lstrip_blocks, no escaping of HTML, an immutable sandbox, the
// statements break, continue and generation, and the functions raise_exception and strftime_now.
// tests/golden/make_chat.py compares it with Python's jinja2.
//
// Differences from jinja2: no include, import, extends, block, do, trans, autoescape, recursive
// loops, targets in parentheses within a tuple, changed() of loops, or arguments with *; no Markup
// (safe and escape); no filters batch, slice, groupby, format, pprint, random, striptags, truncate,
// urlencode, wordwrap, xmlattr and filesizeformat; no functions lipsum, cycler and joiner; integers
// have 64 bits; upper() and lower() use Unicode's simple mappings; round takes no negative
// precision. range() and the results of items(), keys() and values(), and of the filters map,
// select, selectattr, reject, rejectattr, unique, items and reverse, are lists. In jinja2 they are
// iterators or views: iterators are true even if empty, and the second loop over one finds nothing.
//
// A template is untrusted. Its size, nesting, work and output are limited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace muster::trainer::chat {

// The limits of one rendering.
struct RenderOptions {
  // Evaluated expressions and statements, plus bytes of the texts and items of the lists that they
  // make. A conversation of 1 MB needs some 10 million; the limit takes a few seconds.
  uint64_t work_max = 1ULL << 30;
  size_t output_bytes_max = 64 << 20;
  // Names of variables: a template that writes one of them although it is missing fails. Others
  // give an empty text.
  std::vector<std::string> required;
  // The time of strftime_now(), in seconds since 1970. Without it there is no such function, so the
  // result does not depend on the time.
  std::optional<int64_t> now;
};

// Bytes [begin, end) of a text.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;

  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

struct Rendered {
  std::string text;
  std::vector<TextSpan> generated;  // the texts of {% generation %} blocks; they may be empty
  uint64_t work = 0;                // the units of work, as RenderOptions::work_max
};

// A parsed template. Immutable and thread-safe.
class Template {
 public:
  // Returns InvalidArgument with the line and what is wrong: "line 3: expected …".
  static absl::StatusOr<Template> parse(std::string_view source);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // Returns whether the template has a {% generation %} block.
  bool marks_generated() const { return marks_generated_; }
  // Renders the template. `variables` is an object. Returns InvalidArgument with the line and what
  // is wrong, such as the message of raise_exception(), and ResourceExhausted if a limit is
  // exceeded.
  absl::StatusOr<Rendered> render(const nlohmann::ordered_json& variables,
                                  const RenderOptions& options = {}) const;

 private:
  class Tree;

  explicit Template(std::unique_ptr<Tree> tree);

  std::unique_ptr<Tree> tree_;
  bool marks_generated_ = false;
};

}  // namespace muster::trainer::chat
