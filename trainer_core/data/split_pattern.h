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
// The patterns of tiktoken's encodings, and of Llama 3, which is cl100k's with other rules for
// blanks.
extern const std::string_view kR50kPattern;
extern const std::string_view kCl100kPattern;
extern const std::string_view kLlama3Pattern;
extern const std::string_view kO200kPattern;
// The pattern of Qwen's tokenizer (tokenization_qwen.py): Llama 3's with single digits.
extern const std::string_view kQwenPattern;

// A compiled pattern. Immutable and thread-safe.
class SplitPattern {
 public:
  // The matching state of one thread.
  class Matcher {
   public:
    virtual ~Matcher() = default;
    // Calls take(piece) for each match in `text` and for the text between matches; together they
    // are the text. Requires: `text` is well-formed UTF-8. ResourceExhausted if the pattern takes
    // too long on it, or too much memory.
    virtual absl::Status split(std::string_view text,
                               const std::function<void(std::string_view)>& take) = 0;
  };

  // Compiles Perl's syntax, as in Oniguruma (Hugging Face's tokenizers) and Rust's regex
  // (tiktoken). In those, \s and \S mean Unicode's White_Space; in PCRE2 they do not, so they are
  // spelled out here. InvalidArgument names the problem and its offset.
  static absl::StatusOr<std::shared_ptr<const SplitPattern>> compile(std::string_view pattern);
  virtual ~SplitPattern() = default;

  virtual std::unique_ptr<Matcher> matcher() const = 0;
};

}  // namespace muster::trainer
