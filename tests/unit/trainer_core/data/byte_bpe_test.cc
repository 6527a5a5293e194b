// Byte-level BPE against the results of `tokenizers` and `tiktoken`
// (tests/golden/make_tokenizers.py).
#include <gmock/gmock.h>

#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"
#include "trainer_core/data/bpe.h"
#include "trainer_core/data/byte_level_alphabet.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kFolder = source_dir() + "/tests/golden/tokenizers/";

const json& golden() {
  static const json kGolden = json::parse(read_file(kFolder + "golden.json"));
  return kGolden;
}

// The stand-ins of tests/golden are named like their encodings.
std::string encoding_of(const std::string& file) {
  const std::filesystem::path path(file);
  return path.extension() == ".tiktoken" ? path.stem().string() : "";
}

std::unique_ptr<Tokenizer> load(const std::string& file) {
  auto tokenizer = Tokenizer::load(file, encoding_of(file));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::string problem_of(const std::string& bytes, const std::string& name = "tokenizer.json",
                       const std::string& encoding = "") {
  const TempFolder folder;
  write_file(folder.file(name), bytes);
  const auto tokenizer = Tokenizer::load(folder.file(name), encoding);
  return tokenizer.ok() ? "" : std::string(tokenizer.status().message());
}

void expect_golden(const std::string& type, const std::string& file, const json& expected) {
  const auto tokenizer = load(kFolder + file);
  EXPECT_EQ(tokenizer->type(), type);
  const auto encoder = tokenizer->encoder();  // its cache sees all texts, twice
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto text = golden()["texts"][i].get<std::string>();
      std::vector<int32_t> ids;
      ASSERT_TRUE(encoder->append(text, ids).ok());
      EXPECT_EQ(ids, expected[i].get<std::vector<int32_t>>()) << file << ": " << text;
    }
  }
}

TEST(ByteBpe, IdsEqualHuggingFaces) {
  for (const auto& [name, expected] : golden()["huggingface"].items())
    expect_golden("huggingface", name + ".json", expected);
}

TEST(ByteBpe, IdsEqualTiktokens) {
  for (const auto& [name, expected] : golden()["tiktoken"].items())
    expect_golden("tiktoken", name + ".tiktoken", expected);
}

TEST(ByteBpe, TextRoundTripsWithoutSpecialTokens) {
  for (const auto& [name, expected] : golden()["decoded"].items()) {
    const auto tokenizer = load(kFolder + name + ".json");
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto ids = golden()["huggingface"][name][i].get<std::vector<int32_t>>();
      EXPECT_EQ(*tokenizer->decode(ids), expected[i].get<std::string>()) << name << " " << i;
    }
  }
  const auto tokenizer = load(kFolder + "cl100k_base.tiktoken");
  for (const json& text : golden()["texts"])
    EXPECT_EQ(*tokenizer->decode(*tokenizer->encode(text.get<std::string>())), text);
  EXPECT_FALSE(tokenizer->decode(std::vector<int32_t>{tokenizer->vocab_size()}).ok());
  EXPECT_EQ(*tokenizer->decode(*tokenizer->encode("caf\xE9")), "caf\xEF\xBF\xBD");
}

TEST(ByteBpe, SizesAndEndsOfSequences) {
  EXPECT_EQ(load(kFolder + "llama3.tiktoken")->vocab_size(), 665 + 256);
  EXPECT_EQ(load(kFolder + "llama3.tiktoken")->eos_id(), 666);
  EXPECT_EQ(load(kFolder + "cl100k_base.tiktoken")->vocab_size(), 665 + 21);
  EXPECT_EQ(load(kFolder + "cl100k_base.tiktoken")->eos_id(), 666);
  EXPECT_EQ(load(kFolder + "r50k_base.tiktoken")->eos_id(), 666);
  EXPECT_EQ(load(kFolder + "llama3.json")->vocab_size(), 669);
  EXPECT_EQ(load(kFolder + "llama3.json")->eos_id(), 666);
  // tokenizer_config.json beside it takes precedence.
  const TempFolder folder;
  std::filesystem::copy(kFolder + "llama3.json", folder.file("tokenizer.json"));
  write_file(folder.file("tokenizer_config.json"), R"({"eos_token": {"content": "<tool>"}})");
  EXPECT_EQ(load(folder.path())->eos_id(), 667);
}

// Both merge algorithms, on words of few letters with many equal ranks and ties.
TEST(ByteBpe, LongWordsAreMergedLikeShortOnes) {
  BpeMerges merges;
  for (int byte = 0; byte < 256; ++byte) merges.set_byte(static_cast<uint8_t>(byte), byte);
  std::vector<std::pair<int32_t, int32_t>> pairs;
  Mutator random(9);
  for (int32_t id = 256; id < 400; ++id) {
    const auto any = [&] {
      const uint64_t draw = random.draw(static_cast<uint64_t>(id) - 256 + 3);
      return static_cast<int32_t>(draw < 3 ? 'a' + draw : 256 + draw - 3);
    };
    pairs.emplace_back(any(), any());
    merges.add(pairs.back().first, pairs.back().second, static_cast<uint32_t>(id), id);
  }
  // A direct implementation of the definition.
  std::map<std::pair<int32_t, int32_t>, int32_t> by_pair;
  for (size_t i = 0; i < pairs.size(); ++i) by_pair[pairs[i]] = static_cast<int32_t>(256 + i);
  const auto reference = [&](const std::string& word) {
    std::vector<int32_t> ids(word.begin(), word.end());
    for (;;) {
      size_t best = ids.size();
      int32_t rank = 1 << 30;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto found = by_pair.find({ids[i], ids[i + 1]});
        if (found == by_pair.end() || found->second >= rank) continue;
        rank = found->second;
        best = i;
      }
      if (best == ids.size()) return ids;
      ids[best] = rank;
      ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
  };
  for (int i = 0; i < 3000; ++i) {
    std::string word;
    for (uint64_t n = 1 + random.draw(120); n > 0; --n)
      word += static_cast<char>('a' + random.draw(3));
    std::vector<int32_t> ids;
    merges.append(word, ids);
    ASSERT_EQ(ids, reference(word)) << word;
  }
}

TEST(ByteBpe, AHugeWordTakesNoQuadraticTime) {
  const auto tokenizer = load(kFolder + "gpt2.json");
  const std::string word(4 << 20, 'a');
  const auto ids = tokenizer->encode(word);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*tokenizer->decode(*ids), word);
}

TEST(ByteBpe, UnsupportedFeaturesAreRefused) {
  const json good = json::parse(read_file(kFolder + "llama3.json"));
  const auto with = [&](const char* path, const json& value) {
    json bad = good;
    bad[json::json_pointer(path)] = value;
    return problem_of(bad.dump());
  };
  EXPECT_EQ(problem_of(good.dump()), "");
  EXPECT_THAT(with("/model/type", "Unigram"), HasSubstr("model.type is Unigram"));
  EXPECT_THAT(with("/model/byte_fallback", true), HasSubstr("give the tokenizer.model"));
  EXPECT_THAT(with("/model/dropout", 0.1), HasSubstr("model.dropout is 0.1"));
  EXPECT_THAT(with("/normalizer", {{"type", "Lowercase"}}),
              HasSubstr("normalizer is of type Lowercase; NFC, NFD, NFKC, NFKD"));
  EXPECT_THAT(with("/normalizer", {{"type", "Sequence"},
                                   {"normalizers", {{{"type", "NFC"}}, {{"type", "Strip"}}}}}),
              HasSubstr("normalizer is of type Strip"));
  EXPECT_THAT(with("/normalizer",
                   {{"type", "Sequence"},
                    {"normalizers", {{{"type", "Sequence"}, {"normalizers", json::array()}}}}}),
              HasSubstr("normalizer: a Sequence within a Sequence"));
  EXPECT_THAT(with("/normalizer", "NFC"), HasSubstr("cannot be used"));
  EXPECT_THAT(with("/pre_tokenizer", nullptr), HasSubstr("no pre_tokenizer"));
  EXPECT_THAT(with("/pre_tokenizer", {{"type", "Metaspace"}}),
              HasSubstr("pre_tokenizer Metaspace"));
  EXPECT_THAT(with("/pre_tokenizer/pretokenizers/0/behavior", "Removed"), HasSubstr("Removed"));
  EXPECT_THAT(with("/pre_tokenizer/pretokenizers/0/pattern/Regex", "(a"), HasSubstr("offset 2"));
  EXPECT_THAT(with("/model/vocab/zz", 1 << 20), HasSubstr("token id 1048576 among"));
  EXPECT_THAT(with("/model/vocab/zz", -1), HasSubstr("token id -1 among"));
  EXPECT_THAT(with("/model/vocab/zz", "x"), HasSubstr("the id of \"zz\" is \"x\""));
  const std::string a =
      "token id " + good["model"]["vocab"]["A"].dump() + " is that of \"A\" and of ";
  EXPECT_THAT(with("/model/vocab/zz", good["model"]["vocab"]["A"]), HasSubstr(a + "\"zz\""));
  EXPECT_THAT(with("/added_tokens/0/id", good["model"]["vocab"]["A"]),
              HasSubstr(a + "\"<|begin_of_text|>\""));
  EXPECT_THAT(with("/model/merges/3", "nonsense"), HasSubstr("model.merges[3] is no pair"));
  EXPECT_THAT(with("/model/merges/3", "zz yy"), HasSubstr("\"zzyy\", which is not in the vocab"));
  EXPECT_THAT(with("/added_tokens/0/lstrip", true), HasSubstr("lstrip of \"<|begin_of_text|>\""));
  // GPT-2's file has its special token in both lists.
  json twice = good;
  twice["model"]["vocab"]["<|begin_of_text|>"] = twice["added_tokens"][0]["id"];
  EXPECT_EQ(problem_of(twice.dump()), "");
  json missing = good;
  missing["model"]["vocab"].erase("A");
  EXPECT_THAT(problem_of(missing.dump()), HasSubstr("no token for byte 65"));
  EXPECT_THAT(problem_of("{\"a\": 1}"), HasSubstr("is no tokenizer.json"));
}

TEST(ByteBpe, DamagedRankFilesNameTheLine) {
  const std::string good = read_file(kFolder + "llama3.tiktoken");
  const size_t second = good.find('\n') + 1;
  EXPECT_EQ(problem_of(good, "t.model", "llama3"), "");
  std::string bad = good;
  bad.insert(second, "!!\n");
  EXPECT_THAT(problem_of(bad, "t.model", "llama3"), HasSubstr("line 2 is not a token"));
  bad = good;
  bad.insert(second, "AAAA 7\n");
  EXPECT_THAT(problem_of(bad, "t.model", "llama3"), HasSubstr("line 2 has rank 7; 1 is next"));
  EXPECT_THAT(problem_of(good.substr(0, second), "t.model", "llama3"),
              HasSubstr("no token for byte 0"));
}

TEST(ByteBpe, DamagedFilesAreRefusedOrTokenize) {
  for (const char* name : {"llama3.json", "llama3.tiktoken"}) {
    const std::string good = read_file(kFolder + name);
    Mutator mutator(21);
    for (int i = 0; i < 150; ++i) {
      const TempFolder folder;
      write_file(folder.file(name), mutator.mutate(good));
      const auto tokenizer = Tokenizer::load(folder.file(name), encoding_of(name));
      if (!tokenizer.ok()) continue;
      const auto ids = (*tokenizer)->encode("The ranks' 1234 世界 <tool>");
      if (!ids.ok()) continue;
      for (const int32_t id : *ids) ASSERT_LT(id, (*tokenizer)->vocab_size());
      ASSERT_TRUE((*tokenizer)->decode(*ids).ok());
    }
  }
}

TEST(ByteLevelAlphabet, CoversEveryByte) {
  EXPECT_EQ(bytes_of_alphabet("ĠtheĊ"), " the\n");
  EXPECT_EQ(bytes_of_alphabet("ÃŃ"), "\xC3\xAD");
  EXPECT_EQ(bytes_of_alphabet("a b"), std::nullopt);
  EXPECT_EQ(bytes_of_alphabet("世"), std::nullopt);
}

}  // namespace
}  // namespace muster::trainer
