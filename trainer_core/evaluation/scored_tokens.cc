#include "trainer_core/evaluation/scored_tokens.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

// White space in Unicode that is not ASCII.
constexpr std::string_view kWideSpaces[] = {"\u0085", "\u00A0", "\u1680", "\u2000", "\u2001",
                                            "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
                                            "\u2007", "\u2008", "\u2009", "\u200A", "\u2028",
                                            "\u2029", "\u202F", "\u205F", "\u3000"};

// Returns the bytes of the last character of `text` if it is white space, otherwise 0.
size_t last_space(std::string_view text) {
  if (text.empty()) return 0;
  const char last = text.back();
  if (last == ' ' || (last >= '\t' && last <= '\r') || (last >= '\x1c' && last <= '\x1f')) return 1;
  for (const std::string_view space : kWideSpaces)
    if (text.ends_with(space)) return space.size();
  return 0;
}

}  // namespace

size_t trailing_space(std::string_view text) {
  size_t bytes = 0;
  while (const size_t space = last_space(text.substr(0, text.size() - bytes))) bytes += space;
  return bytes;
}

absl::StatusOr<std::vector<int32_t>> ScoredTokenEncoder::encode(std::string_view text) const {
  auto ids = tokenizer_.encode(text);
  if (ids.ok() && options_.add_bos) ids->insert(ids->begin(), options_.bos_id);
  return ids;
}

absl::StatusOr<std::vector<ScoredTokens>> ScoredTokenEncoder::continuations(
    std::string_view context, std::span<const std::string> continuations) const {
  std::vector<int32_t> before;
  if (!context.empty()) {
    auto encoded = encode(context.substr(0, context.size() - trailing_space(context)));
    if (!encoded.ok()) return encoded.status();
    before = *std::move(encoded);
  }
  std::vector<ScoredTokens> sequences;
  for (const std::string& continuation : continuations) {
    auto sequence = context.empty()
                        ? first_text(continuation)
                        : later_text(before, absl::StrCat(std::string(context), continuation));
    if (sequence.ok()) sequence = fitted(*std::move(sequence));
    if (!sequence.ok()) return sequence.status();
    sequences.push_back(*std::move(sequence));
  }
  return sequences;
}

absl::StatusOr<ScoredTokens> ScoredTokenEncoder::first_text(std::string_view text) const {
  auto ids = tokenizer_.encode(text);
  if (!ids.ok()) return ids.status();
  if (ids->empty() || ids->front() != options_.bos_id) ids->insert(ids->begin(), options_.bos_id);
  const auto scored = static_cast<int32_t>(ids->size()) - 1;
  return ScoredTokens{*std::move(ids), scored};
}

absl::StatusOr<ScoredTokens> ScoredTokenEncoder::later_text(const std::vector<int32_t>& before,
                                                            std::string_view whole) const {
  const auto ids = encode(whole);
  if (!ids.ok()) return ids.status();
  ScoredTokens sequence{before, 0};
  if (ids->size() <= before.size()) return sequence;
  // A context of blanks alone has no token.
  if (before.empty()) sequence.tokens.push_back(options_.bos_id);
  sequence.tokens.insert(sequence.tokens.end(),
                         ids->begin() + static_cast<std::ptrdiff_t>(before.size()), ids->end());
  sequence.scored = static_cast<int32_t>(ids->size() - before.size());
  return sequence;
}

// Rejects a sequence without a scored token, and shortens one that is too long.
absl::StatusOr<ScoredTokens> ScoredTokenEncoder::fitted(ScoredTokens sequence) const {
  if (sequence.scored < 1)
    return absl::InvalidArgumentError("the continuation has no token of its own");
  const auto limit = static_cast<size_t>(options_.seq_len) + 1;
  if (sequence.tokens.size() <= limit) return sequence;
  if (sequence.scored > options_.seq_len) {
    return absl::InvalidArgumentError(absl::StrCat("the continuation has ", sequence.scored,
                                                   " tokens, but a sequence has ", options_.seq_len,
                                                   " (max_target_length)"));
  }
  if (!options_.truncate) {
    return absl::InvalidArgumentError(absl::StrCat(
        "context and continuation have ", sequence.tokens.size(), " tokens, but a sequence has ",
        options_.seq_len,
        " (max_target_length), and the token after it; eval_truncate=true drops the beginning of "
        "long contexts"));
  }
  // A copy, which has no room for the dropped tokens.
  const auto first = sequence.tokens.end() - static_cast<std::ptrdiff_t>(limit);
  return ScoredTokens{{first, sequence.tokens.end()}, sequence.scored};
}

absl::StatusOr<std::vector<ScoredTokens>> ScoredTokenEncoder::rolling(std::string_view text) const {
  std::vector<ScoredTokens> windows;
  auto encoded = text.empty() ? std::vector<int32_t>() : encode(text);
  if (!encoded.ok()) return encoded.status();
  // The text after bos_id, which gives its first token a context.
  std::vector<int32_t> all = *std::move(encoded);
  const size_t count = all.size(), length = static_cast<size_t>(options_.seq_len);
  all.insert(all.begin(), options_.bos_id);
  for (size_t scored = 0; scored < count;) {
    const size_t here = std::min(length, count - scored);
    const size_t end = scored + here + 1;
    // The last window has as much context as fits.
    const size_t begin = end - std::min(end, length + 1);
    windows.push_back({{all.begin() + static_cast<std::ptrdiff_t>(begin),
                        all.begin() + static_cast<std::ptrdiff_t>(end)},
                       static_cast<int32_t>(here)});
    scored += here;
  }
  return windows;
}

}  // namespace muster::trainer
