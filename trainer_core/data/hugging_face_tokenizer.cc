#include "trainer_core/data/hugging_face_tokenizer.h"

#include <array>
#include <exception>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/text/absl_view.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/data/byte_bpe_tokenizer.h"
#include "trainer_core/data/byte_level_alphabet.h"
#include "trainer_core/data/shard.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Ids = absl::flat_hash_map<std::string, int32_t>;

// The maximum gap between ids. Small gaps occur, as in cl100k, but a single id of 16 million must
// not allocate so many entries.
constexpr int64_t kIdGapMax = 1 << 16;
constexpr size_t kConfigBytesMax = 1 << 20;
// Names of the end-of-text token if no tokenizer_config.json gives one: Llama 3, GPT-2, Llama 2,
// Gemma.
constexpr std::array<std::string_view, 4> kEosNames = {"<|end_of_text|>", "<|endoftext|>", "</s>",
                                                       "<eos>"};

// An error in the file. load_hugging_face() catches it, together with the exceptions of the JSON
// library.
class Refused : public std::exception {
 public:
  explicit Refused(std::string why) : why_(std::move(why)) {}
  const char* what() const noexcept override { return why_.c_str(); }

 private:
  std::string why_;
};

bool is_set(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null() && *found != false && *found != "";
}

std::string type_of(const json& part) { return part.at("type").get<std::string>(); }

// Shows a value in a message, without deep nesting.
std::string brief(const json& value) {
  return value.is_object() ? absl::StrCat("of type ", value.value("type", "?"))
                           : show_json(value.is_array() ? json("a list") : value);
}

class Reader {
 public:
  Reader(const json& file, std::string folder) : file_(file), folder_(std::move(folder)) {}

  std::unique_ptr<Tokenizer> read() {
    parts_.type = "huggingface";
    check_model();
    read_vocabulary();
    read_merges();
    if (is_set(file_, "normalizer")) read_normalizer(file_["normalizer"]);
    read_added_tokens();
    read_pre_tokenizer(file_.at("pre_tokenizer"));
    if (!has_byte_level_)
      throw Refused("pre_tokenizer has no ByteLevel; other kinds of BPE are not supported");
    parts_.eos_id = eos_id();
    return make_byte_bpe_tokenizer(std::move(parts_));
  }

 private:
  void check_model() const {
    const json& model = file_.at("model");
    if (const std::string type = model.value("type", "BPE"); type != "BPE")
      throw Refused(absl::StrCat("model.type is ", type, "; byte-level BPE is supported"));
    if (is_set(model, "byte_fallback")) {
      throw Refused(
          "model.byte_fallback is set: it is a SentencePiece model in another form; give "
          "the tokenizer.model that came with it");
    }
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      if (is_set(model, key))
        throw Refused(absl::StrCat("model.", key, " is ", brief(model[key]), "; only null works"));
    }
  }

  void read_normalizer(const json& part) {
    const std::string type = type_of(part);
    if (type == "Sequence") {
      for (const json& below : part.at("normalizers")) {
        if (!below.is_object() || type_of(below) == "Sequence")
          throw Refused("normalizer: a Sequence within a Sequence");
        read_normalizer(below);
      }
      return;
    }
    const auto form = unicode_form_named(type);
    if (!form)
      throw Refused(absl::StrCat("normalizer is ", brief(part),
                                 "; NFC, NFD, NFKC, NFKD and Sequences of them are supported"));
    parts_.forms.push_back(*form);
  }

  // Returns `text` after the normalizers.
  std::string normalized(std::string text) const {
    for (const UnicodeForm form : parts_.forms)
      text = std::string(UnicodeNormalizer(form).apply(text));
    return text;
  }

  // `name` is the token's name in the file.
  void set_token(int64_t id, const std::string& name, std::string bytes, bool is_special) {
    const auto most = static_cast<int64_t>(entries_) + kIdGapMax;
    if (id < 0 || id >= most || id >= int64_t{kVocabSizeMax})
      throw Refused(absl::StrCat("token id ", id, " among ", entries_, " tokens"));
    if (const auto [other, is_new] = names_.emplace(id, name); !is_new && other->second != name)
      throw Refused(absl::StrCat("token id ", id, " is that of \"", other->second, "\" and of \"",
                                 name, "\"; each token has an id of its own"));
    const auto index = static_cast<size_t>(id);
    if (index >= parts_.tokens.size()) {
      parts_.tokens.resize(index + 1);
      parts_.is_special.resize(index + 1);
    }
    parts_.tokens[index] = std::move(bytes);
    parts_.is_special[index] = is_special;
  }

  void read_vocabulary() {
    const json& vocabulary = file_.at("model").at("vocab");
    if (!vocabulary.is_object()) throw Refused("model.vocab must be an object of tokens and ids");
    entries_ = vocabulary.size() + file_.value("added_tokens", json::array()).size();
    Ids words;
    for (const auto& [token, id] : vocabulary.items()) {
      if (!id.is_number_integer())
        throw Refused(absl::StrCat("model.vocab: the id of \"", token, "\" is ", brief(id)));
      const auto number = id.get<int64_t>();
      std::optional<std::string> bytes = bytes_of_alphabet(token);
      set_token(number, token, bytes.value_or(token), false);
      ids_.emplace(token, static_cast<int32_t>(number));
      if (!bytes) continue;
      if (bytes->size() == 1)
        parts_.merges.set_byte(static_cast<uint8_t>((*bytes)[0]), static_cast<int32_t>(number));
      words.emplace(*std::move(bytes), static_cast<int32_t>(number));
    }
    for (int byte = 0; byte < 256; ++byte) {
      if (parts_.merges.byte_id(static_cast<uint8_t>(byte)) < 0)
        throw Refused(absl::StrCat("model.vocab has no token for byte ", byte));
    }
    if (is_set(file_.at("model"), "ignore_merges")) parts_.merges.set_whole_words(std::move(words));
  }

  int32_t id_of(const std::string& token, size_t merge) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) {
      throw Refused(absl::StrCat("model.merges[", merge, "] has \"", token,
                                 "\", which is not in the vocabulary"));
    }
    return found->second;
  }

  // Merges are "left right", or ["left", "right"] in newer files.
  void read_merges() {
    const json& merges = file_.at("model").at("merges");
    if (!merges.is_array()) throw Refused("model.merges must be a list");
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const json& merge = merges[rank];
      std::string left;
      std::string right;
      if (merge.is_string()) {
        const auto text = merge.get<std::string>();
        const size_t blank = text.find(' ');
        if (blank == std::string::npos)
          throw Refused(absl::StrCat("model.merges[", rank, "] is no pair: ", brief(merge)));
        left = text.substr(0, blank);
        right = text.substr(blank + 1);
      } else {
        left = merge.at(0).get<std::string>();
        right = merge.at(1).get<std::string>();
      }
      parts_.merges.add(id_of(left, rank), id_of(right, rank), static_cast<uint32_t>(rank),
                        id_of(left + right, rank));
    }
  }

  void read_added_tokens() {
    for (const json& token : file_.value("added_tokens", json::array())) {
      const auto content = token.at("content").get<std::string>();
      if (content.empty()) throw Refused("added_tokens: one has no content");
      for (const char* key : {"single_word", "lstrip", "rstrip"}) {
        if (is_set(token, key)) {
          throw Refused(absl::StrCat("added_tokens: ", key, " of \"", content,
                                     "\" is true; only false works"));
        }
      }
      const auto id = whole_number<int64_t>(token.at("id"));
      set_token(id, content, content, token.value("special", false));
      ids_.insert_or_assign(content, static_cast<int32_t>(id));
      if (token.value("normalized", false)) {
        parts_.normalized.add(normalized(content), static_cast<int32_t>(id));
      } else {
        parts_.raw.add(content, static_cast<int32_t>(id));
      }
    }
  }

  void read_pre_tokenizer(const json& part) {
    if (part.is_null()) throw Refused("there is no pre_tokenizer; byte-level BPE has one");
    const std::string type = type_of(part);
    if (type == "Sequence") {
      for (const json& below : part.at("pretokenizers")) {
        if (!below.is_object() || type_of(below) == "Sequence")
          throw Refused("pre_tokenizer: a Sequence within a Sequence");
        read_pre_tokenizer(below);
      }
      return;
    }
    if (has_byte_level_) throw Refused(absl::StrCat("pre_tokenizer: ", type, " behind ByteLevel"));
    if (type == "ByteLevel") {
      has_byte_level_ = true;
      parts_.add_prefix_space = part.value("add_prefix_space", true);
      if (part.value("use_regex", true)) add_pattern(std::string(kGpt2Pattern));
      if (parts_.add_prefix_space && parts_.patterns.size() > 1)
        throw Refused("pre_tokenizer: add_prefix_space behind another pre-tokenizer");
    } else if (type == "Digits") {
      add_pattern(part.value("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
    } else if (type == "Split") {
      if (part.at("behavior") != "Isolated") {
        throw Refused(absl::StrCat("pre_tokenizer: Split with behavior ", brief(part["behavior"]),
                                   "; Isolated is supported"));
      }
      const json& pattern = part.at("pattern");
      if (!pattern.contains("Regex")) throw Refused("pre_tokenizer: Split without a Regex");
      add_pattern(pattern["Regex"].get<std::string>());
    } else {
      throw Refused(absl::StrCat("pre_tokenizer ", type,
                                 "; ByteLevel, Split, Digits and Sequence are supported"));
    }
  }

  void add_pattern(const std::string& pattern) {
    auto compiled = SplitPattern::compile(pattern);
    if (!compiled.ok()) throw Refused(absl::StrCat("pre_tokenizer: ", compiled.status().message()));
    parts_.patterns.push_back(*std::move(compiled));
  }

  // Returns the eos_token of the tokenizer_config.json beside the file; nullopt if it states none.
  std::optional<int32_t> stated_eos() const {
    const std::string path = absl::StrCat(folder_, "/tokenizer_config.json");
    std::error_code error;
    // A dangling link counts: another token in its place would end each document.
    if (!fs::exists(fs::symlink_status(path, error))) return std::nullopt;
    const auto config = read_json_file(path, kConfigBytesMax);
    if (!config.ok()) throw Refused(std::string(config.status().message()));
    if (!config->is_object() || !is_set(*config, "eos_token")) return std::nullopt;
    const json& eos = config->at("eos_token");
    const json& name = eos.is_object() && eos.contains("content") ? eos["content"] : eos;
    const auto found = name.is_string() ? ids_.find(name.get<std::string>()) : ids_.end();
    if (found != ids_.end()) return found->second;
    throw Refused(absl::StrCat(path, ": eos_token is ", show_json(name),
                               ", which is no token of the vocabulary"));
  }

  int32_t eos_id() const {
    if (const auto stated = stated_eos()) return *stated;
    for (const std::string_view name : kEosNames) {
      if (const auto found = ids_.find(av(name)); found != ids_.end()) return found->second;
    }
    return -1;
  }

  const json& file_;
  const std::string folder_;
  ByteBpeParts parts_;
  Ids ids_;                                          // by token name in the file
  absl::flat_hash_map<int64_t, std::string> names_;  // the inverse of ids_
  size_t entries_ = 0;
  bool has_byte_level_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> load_hugging_face(std::string_view text,
                                                             const std::string& folder) {
  const json file = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object() || !file.contains("model"))
    return absl::InvalidArgumentError("is no tokenizer.json: there is no JSON object with a model");
  try {
    return Reader(file, folder).read();
  } catch (const std::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("cannot be used: ", e.what()));
  }
}

}  // namespace muster::trainer
