// The regular expressions by which tokenizers split a text into words before they encode bytes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::trainer {

// GPT-2's pattern (Radford et al., "Language models are unsupervised multitask learners", 2019):
// contractions, letters, numbers, other characters with an optional blank before them, blanks.
extern const std::string_view kGpt2Pattern;
// The patterns of tiktoken's encodings r50k and cl100k, and of Llama 3, which is that of cl100k
// with other rules for blanks.
extern const std::string_view kR50kPattern;
extern const std::string_view kCl100kPattern;
extern const std::string_view kLlama3Pattern;
extern const std::string_view kO200kPattern;
// The pattern of Qwen's tokenizer (tokenization_qwen.py): Llama 3's with single digits.
extern const std::string_view kQwenPattern;

// A compiled pattern. Immutable and thread-safe.
class SplitPattern {
 public:
  // The matching state of one thread. Not thread-safe.
  class Matcher {
   public:
    virtual ~Matcher() = default;
    // Calls take(piece) for each match in `text` and for each part between matches, in order, so
    // that the pieces together are the text. Requires that `text` is well-formed UTF-8. Returns
    // ResourceExhausted if the pattern needs too much time or memory.
    virtual absl::Status split(std::string_view text,
                               const std::function<void(std::string_view)>& take) = 0;
  };

  // Compiles a pattern in Perl's syntax. In Oniguruma (Hugging Face's tokenizers) and Rust's regex
  // (tiktoken), \s and \S mean Unicode's White_Space; in PCRE2 they do not, so compile() replaces
  // them by the characters of White_Space. Returns InvalidArgument with the problem and its offset.
  static absl::StatusOr<std::shared_ptr<const SplitPattern>> compile(std::string_view pattern);
  virtual ~SplitPattern() = default;

  virtual std::unique_ptr<Matcher> matcher() const = 0;
};

}  // namespace muster::trainer
