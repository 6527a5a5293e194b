#include "trainer_core/data/tiktoken.h"

#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "trainer_core/data/byte_bpe_tokenizer.h"

namespace muster::trainer {
namespace {

using Ranks = absl::flat_hash_map<std::string, int32_t>;

// The maximum bytes of a token. The longest token of cl100k is 128 blanks.
constexpr size_t kTokenBytesMax = 4096;

struct Rank {
  std::string bytes;
  int64_t rank = 0;
};

std::optional<Rank> parse_line(std::string_view line) {
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos || blank == 0) return std::nullopt;
  Rank parsed;
  const std::string_view number = line.substr(blank + 1);
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), parsed.rank);
  if (error != std::errc() || end != number.data() + number.size() || parsed.rank < 0)
    return std::nullopt;
  if (!absl::Base64Unescape(av(line.substr(0, blank)), &parsed.bytes) || parsed.bytes.empty())
    return std::nullopt;
  return parsed;
}

// The properties of an encoding that its file does not contain.
struct Encoding {
  std::string_view name;  // a part of the file's name
  std::string_view pattern;
  std::vector<std::pair<int32_t, std::string>> specials;  // ids relative to the number of ranks
  std::string_view eos;
};

// Llama 3's 256 special tokens: some have names, the others are reserved.
std::vector<std::pair<int32_t, std::string>> llama3_specials() {
  std::vector<std::string> names = {"<|begin_of_text|>", "<|end_of_text|>"};
  for (int i = 0; i < 4; ++i) names.push_back(absl::StrCat("<|reserved_special_token_", i, "|>"));
  names.insert(names.end(), {"<|start_header_id|>", "<|end_header_id|>",
                             "<|reserved_special_token_4|>", "<|eot_id|>"});
  for (int i = 5; i < 251; ++i) names.push_back(absl::StrCat("<|reserved_special_token_", i, "|>"));
  std::vector<std::pair<int32_t, std::string>> specials;
  for (size_t i = 0; i < names.size(); ++i)
    specials.emplace_back(static_cast<int32_t>(i), std::move(names[i]));
  return specials;
}

Encoding encoding_named(std::string_view file) {
  if (file.find("cl100k") != std::string_view::npos) {
    // Id 100256 is unused.
    return {"cl100k",
            kCl100kPattern,
            {{1, "<|endoftext|>"},
             {2, "<|fim_prefix|>"},
             {3, "<|fim_middle|>"},
             {4, "<|fim_suffix|>"},
             {20, "<|endofprompt|>"}},
            "<|endoftext|>"};
  }
  for (const std::string_view name : {"r50k", "gpt2"}) {
    if (file.find(name) != std::string_view::npos)
      return {name, kR50kPattern, {{0, "<|endoftext|>"}}, "<|endoftext|>"};
  }
  return {"llama3", kLlama3Pattern, llama3_specials(), "<|end_of_text|>"};
}

// Adds every division of a token into two tokens as a merge with the token's rank, because tiktoken
// merges two adjacent tokens if their concatenated bytes are a token.
void add_merges(const Ranks& ranks, ByteBpeParts& parts) {
  for (const auto& [bytes, rank] : ranks) {
    if (bytes.size() == 1) parts.merges.set_byte(static_cast<uint8_t>(bytes[0]), rank);
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = ranks.find(av(std::string_view(bytes).substr(0, cut)));
      const auto right = ranks.find(av(std::string_view(bytes).substr(cut)));
      if (left != ranks.end() && right != ranks.end())
        parts.merges.add(left->second, right->second, static_cast<uint32_t>(rank), rank);
    }
  }
}

absl::StatusOr<Ranks> read_ranks(std::string_view bytes, ByteBpeParts& parts) {
  Ranks ranks;
  for (size_t number = 1; !bytes.empty(); ++number) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    auto parsed = parse_line(line);
    if (!parsed || parsed->bytes.size() > kTokenBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " is not a token in base64 and its rank"));
    }
    // Ids are ranks and must be consecutive, which bounds the memory that a file can request.
    if (parsed->rank != static_cast<int64_t>(ranks.size())) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, " has rank ", parsed->rank,
                                                     "; ", ranks.size(), " is next"));
    }
    parts.tokens.push_back(parsed->bytes);
    if (!ranks.emplace(std::move(parsed->bytes), static_cast<int32_t>(parsed->rank)).second)
      return absl::InvalidArgumentError(absl::StrCat("line ", number, " repeats a token"));
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (!ranks.contains(std::string(1, static_cast<char>(byte))))
      return absl::InvalidArgumentError(absl::StrCat("has no token for byte ", byte));
  }
  return ranks;
}

}  // namespace

bool looks_like_tiktoken(std::string_view bytes) {
  return parse_line(bytes.substr(0, std::min(bytes.find('\n'), 2 * kTokenBytesMax))).has_value();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> load_tiktoken(std::string_view bytes,
                                                         std::string_view name) {
  ByteBpeParts parts;
  parts.type = "tiktoken";
  auto ranks = read_ranks(bytes, parts);
  if (!ranks.ok()) return ranks.status();
  add_merges(*ranks, parts);
  const auto first_special = static_cast<int32_t>(ranks->size());
  parts.merges.set_whole_words(*std::move(ranks));
  parts.is_special.resize(parts.tokens.size());

  const Encoding encoding = encoding_named(name);
  for (const auto& [offset, token] : encoding.specials) {
    parts.tokens.resize(static_cast<size_t>(first_special + offset) + 1);
    parts.is_special.resize(parts.tokens.size(), true);
    parts.tokens.back() = token;
    if (token == encoding.eos) parts.eos_id = first_special + offset;
  }
  auto pattern = SplitPattern::compile(encoding.pattern);
  if (!pattern.ok()) return pattern.status();
  parts.patterns.push_back(*std::move(pattern));
  return make_byte_bpe_tokenizer(std::move(parts));
}

}  // namespace muster::trainer
