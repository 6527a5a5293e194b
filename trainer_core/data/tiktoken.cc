#include "trainer_core/data/tiktoken.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include "common/text/absl_view.h"
#include "trainer_core/data/byte_bpe_tokenizer.h"

namespace muster::trainer {
namespace {

using Ranks = absl::flat_hash_map<std::string, int32_t>;

// An editor may have put it in front.
constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";
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
  std::string_view pattern;
  std::vector<std::pair<int32_t, std::string>> specials;  // ids relative to the end of the ranks
  std::string_view eos;
  std::string_view bos = {};  // empty: none
  // Whether the ranks leave out one id, which is that of the end of text: p50k's.
  bool has_gap = false;
  std::vector<UnicodeForm> forms = {};
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

constexpr std::string_view kEndOfText = "<|endoftext|>";

// Qwen's control tokens and its 205 reserved ones.
std::vector<std::pair<int32_t, std::string>> qwen_specials() {
  std::vector<std::pair<int32_t, std::string>> specials = {
      {0, std::string(kEndOfText)}, {1, "<|im_start|>"}, {2, "<|im_end|>"}};
  for (int32_t i = 0; i < 205; ++i) specials.emplace_back(3 + i, absl::StrCat("<|extra_", i, "|>"));
  return specials;
}

// nullopt if no encoding has that name.
std::optional<Encoding> encoding_named(std::string_view name) {
  const std::string end(kEndOfText);
  if (name == "cl100k_base") {
    // Id 100256 is unused.
    return Encoding{kCl100kPattern,
                    {{1, end},
                     {2, "<|fim_prefix|>"},
                     {3, "<|fim_middle|>"},
                     {4, "<|fim_suffix|>"},
                     {20, "<|endofprompt|>"}},
                    kEndOfText};
  }
  // Id 199998 is unused.
  if (name == "o200k_base")
    return Encoding{kO200kPattern, {{1, end}, {20, "<|endofprompt|>"}}, kEndOfText};
  if (name == "p50k_base")
    return Encoding{kR50kPattern, {}, kEndOfText, /*bos=*/{}, /*has_gap=*/true};
  if (name == "r50k_base" || name == "gpt2") return Encoding{kR50kPattern, {{0, end}}, kEndOfText};
  if (name == "llama3")
    return Encoding{kLlama3Pattern, llama3_specials(), "<|end_of_text|>", "<|begin_of_text|>"};
  if (name == "qwen") {
    return Encoding{kQwenPattern, qwen_specials(),   kEndOfText,
                    /*bos=*/{},   /*has_gap=*/false, {UnicodeForm::kNfc}};
  }
  return std::nullopt;
}

std::string sha256_of(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

// Returns the hashes that the file may have had before a program changed its ends: Git on Windows
// writes CR LF, and editors add or leave out the last newline.
std::vector<std::string> hashes_as_published(std::string_view bytes) {
  std::string text = absl::StrReplaceAll(av(bytes), {{"\r\n", "\n"}});
  while (text.ends_with('\n')) text.pop_back();
  const std::string without_end = sha256_of(text);
  return {without_end, sha256_of(text + "\n")};
}

std::string known_names() {
  std::string names;
  for (const std::string_view name : kTiktokenEncodings)
    absl::StrAppend(&names, names.empty() ? "" : ", ", av(name));
  return names;
}

// The name of a file's encoding and how it is known.
struct Identified {
  std::string name;
  bool is_stated = false;  // false: known by its hash
};

absl::StatusOr<Identified> identify(std::string_view bytes, std::string_view stated,
                                    std::span<const PublishedRanks> published) {
  if (!stated.empty() && !encoding_named(stated)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot have the encoding \"", av(stated),
                                                   "\"; the known ones are ", known_names()));
  }
  const std::string hash = sha256_of(bytes);
  const std::vector<std::string> hashes = hashes_as_published(bytes);
  for (const PublishedRanks& file : published) {
    const bool is_it =
        hash == file.sha256 || std::find(hashes.begin(), hashes.end(), file.sha256) != hashes.end();
    if (!is_it) continue;
    // gpt2 is r50k_base by another name.
    const bool is_same = stated.empty() || stated == file.encoding ||
                         (stated == "gpt2" && file.encoding == "r50k_base");
    if (is_same) return Identified{std::string(file.encoding), false};
    return absl::InvalidArgumentError(
        absl::StrCat("is ", av(file.encoding), " by its SHA-256, not ", av(stated)));
  }
  if (!stated.empty()) return Identified{std::string(stated), true};
  return absl::InvalidArgumentError(absl::StrCat(
      "is a tiktoken file of an unknown encoding (SHA-256 ", hash,
      "): the word pattern and the special tokens are not in it; name it with --encoding, or "
      "tokenizer_type=tiktoken:NAME for a run: ",
      known_names()));
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

// Reads ranks, which are dense but for one id if `has_gap`.
absl::StatusOr<Ranks> read_ranks(std::string_view bytes, bool has_gap, ByteBpeParts& parts) {
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
    const auto next = static_cast<int64_t>(parts.tokens.size());
    const bool is_gap = has_gap && parts.eos_id < 0 && parsed->rank == next + 1;
    if (is_gap) {
      parts.eos_id = static_cast<int32_t>(next);
      parts.tokens.emplace_back(kEndOfText);
    } else if (parsed->rank != next) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " has rank ", parsed->rank, "; ", next, " is next"));
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
  if (bytes.starts_with(kUtf8Mark)) bytes.remove_prefix(kUtf8Mark.size());
  std::string_view line = bytes.substr(0, std::min(bytes.find('\n'), 2 * kTokenBytesMax));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return parse_line(line).has_value();
}

std::span<const PublishedRanks> published_ranks() {
  static constexpr PublishedRanks kPublished[] = {
      {"223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7", "cl100k_base"},
      {"446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d", "o200k_base"},
      {"94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069", "p50k_base"},
      {"306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930", "r50k_base"},
      {"82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55", "llama3"},
      {"b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186", "qwen"},
  };
  return kPublished;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> load_tiktoken(
    std::string_view bytes, std::string_view stated, std::span<const PublishedRanks> published) {
  if (bytes.starts_with(kUtf8Mark)) bytes.remove_prefix(kUtf8Mark.size());
  const auto identified = identify(bytes, stated, published);
  if (!identified.ok()) return identified.status();
  const Encoding encoding = *encoding_named(identified->name);
  ByteBpeParts parts;
  parts.type = "tiktoken";
  parts.encoding = identified->name;
  parts.encoding_is_stated = identified->is_stated;
  parts.forms = encoding.forms;
  auto ranks = read_ranks(bytes, encoding.has_gap, parts);
  if (!ranks.ok()) return ranks.status();
  if (encoding.has_gap && parts.eos_id < 0) {
    return absl::InvalidArgumentError(absl::StrCat("has no gap in its ranks; ", identified->name,
                                                   " has one, for ", av(encoding.eos)));
  }
  add_merges(*ranks, parts);
  parts.merges.set_whole_words(*std::move(ranks));
  const auto first_special = static_cast<int32_t>(parts.tokens.size());
  parts.is_special.resize(parts.tokens.size());
  if (parts.eos_id >= 0) parts.is_special[static_cast<size_t>(parts.eos_id)] = true;
  for (const auto& [offset, token] : encoding.specials) {
    parts.tokens.resize(static_cast<size_t>(first_special + offset) + 1);
    parts.is_special.resize(parts.tokens.size(), true);
    parts.tokens.back() = token;
    if (token == encoding.eos) parts.eos_id = first_special + offset;
    if (token == encoding.bos) parts.bos_id = first_special + offset;
  }
  auto pattern = SplitPattern::compile(encoding.pattern);
  if (!pattern.ok()) return pattern.status();
  parts.patterns.push_back(*std::move(pattern));
  return make_byte_bpe_tokenizer(std::move(parts));
}

}  // namespace muster::trainer
