#include "trainer_core/data/split_pattern.h"

#include <array>
#include <cstdint>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace muster::trainer {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kR50kPattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
const std::string_view kCl100kPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|)"
    R"(\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
const std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

// Far longer than any pattern in use.
constexpr size_t kPatternBytesMax = 64 << 10;
// Unicode's White_Space (PropList.txt). PCRE2's \s additionally has U+180E.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
// The stack of the compiled code. Nested groups need it; \s+ over megabytes of blanks does not.
constexpr size_t kStackBytes = 32 << 10;
constexpr size_t kStackBytesMax = 16 << 20;
// The maximum steps of a match. A word of the patterns above takes tens of steps.
constexpr uint32_t kMatchLimit = 100'000'000;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

constexpr size_t kEscapeDigits = 4;

// Replaces \s and \S by the characters of White_Space, and writes \u4e00 in the syntax of PCRE2. \S
// within a class cannot be replaced, so it keeps the meaning of PCRE2.
std::string spell_out(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 'u' && i + kEscapeDigits < pattern.size()) {
        absl::StrAppend(&out, "\\x{", av(pattern.substr(i + 1, kEscapeDigits)), "}");
        i += kEscapeDigits;
        continue;
      }
      const bool is_blank = escaped == 's' || (escaped == 'S' && !in_class);
      if (!is_blank) {
        out += c;
        out += escaped;
      } else if (in_class) {
        out += kWhiteSpace;
      } else {
        absl::StrAppend(&out, escaped == 's' ? "[" : "[^", av(kWhiteSpace), "]");
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeStack {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

size_t character_bytes(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

class PcreMatcher : public SplitPattern::Matcher {
 public:
  PcreMatcher(const pcre2_code* code, bool has_jit)
      : code_(code),
        has_jit_(has_jit),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(kStackBytes, kStackBytesMax, nullptr)) {
    pcre2_set_match_limit(context_.get(), kMatchLimit);
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  absl::Status split(std::string_view text,
                     const std::function<void(std::string_view)>& take) override {
    const size_t* const found = pcre2_get_ovector_pointer(data_.get());
    size_t done = 0;  // bytes of the text that were taken
    size_t at = 0;
    while (at < text.size()) {
      const int code = match(text, at);
      if (code == PCRE2_ERROR_NOMATCH) break;
      if (code < 0) {
        return absl::ResourceExhaustedError(
            absl::StrCat("the tokenizer's pattern gives up: ", message_of(code)));
      }
      if (found[1] <= found[0]) {  // an empty match splits nothing
        at = found[0] >= text.size() ? text.size() : found[0] + character_bytes(text[found[0]]);
        continue;
      }
      if (found[0] > done) take(text.substr(done, found[0] - done));
      take(text.substr(found[0], found[1] - found[0]));
      done = at = found[1];
    }
    if (done < text.size()) take(text.substr(done));
    return absl::OkStatus();
  }

 private:
  int match(std::string_view text, size_t at) {
    const auto* const bytes = reinterpret_cast<PCRE2_SPTR>(text.data());
    return has_jit_ ? pcre2_jit_match(code_, bytes, text.size(), at, 0, data_.get(), context_.get())
                    : pcre2_match(code_, bytes, text.size(), at, PCRE2_NO_UTF_CHECK, data_.get(),
                                  context_.get());
  }

  const pcre2_code* const code_;
  const bool has_jit_;
  const std::unique_ptr<pcre2_match_data, FreeData> data_;
  const std::unique_ptr<pcre2_match_context, FreeContext> context_;
  const std::unique_ptr<pcre2_jit_stack, FreeStack> stack_;
};

class PcrePattern : public SplitPattern {
 public:
  explicit PcrePattern(pcre2_code* code)
      : code_(code), has_jit_(pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0) {}

  std::unique_ptr<Matcher> matcher() const override {
    return std::make_unique<PcreMatcher>(code_.get(), has_jit_);
  }

 private:
  const std::unique_ptr<pcre2_code, FreeCode> code_;
  const bool has_jit_;  // not available on every processor
};

}  // namespace

absl::StatusOr<std::shared_ptr<const SplitPattern>> SplitPattern::compile(
    std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a pattern of ", pattern.size(), " bytes; at most ", kPatternBytesMax, " are compiled"));
  }
  const std::string spelt = spell_out(pattern);
  int error = 0;
  size_t offset = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelt.data()), spelt.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, nullptr);
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern ", spelt, " at offset ", offset, ": ", message_of(error)));
  }
  return std::make_shared<PcrePattern>(code);
}

}  // namespace muster::trainer
