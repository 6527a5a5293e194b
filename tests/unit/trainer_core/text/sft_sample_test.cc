// Samples for fine-tuning: their ids and weights against transformers (tests/golden/make_sft.py),
// and bad input.
#include "trainer_core/text/sft_sample.h"

#include <gmock/gmock.h>

#include <fstream>

#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/golden_file.h"
#include "trainer_core/data/token_dataset.h"
#include "trainer_core/text/tokenize.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

const std::string& golden_folder() {
  static const std::string folder = source_dir() + "/tests/golden";
  return folder;
}

class SftTokenizing : public testing::Test {
 protected:
  TokenizeOptions options(const std::string& input) const {
    TokenizeOptions options;
    options.inputs = {input};
    options.tokenizer_path = golden_folder() + "/tokenizers/llama3.json";
    options.output_directory = folder_.file("sft");
    options.chat_template = golden_folder() + "/chat/chatml.jinja";
    options.sft = true;
    return options;
  }

  // Returns the error of tokenizing a file with this line behind a good one.
  std::string error_of(const std::string& line) const {
    const std::string path = folder_.file("bad.jsonl");
    std::ofstream(path) << R"({"prompt": "a", "completion": "b"})"
                        << "\n"
                        << line << "\n";
    const auto report = tokenize_files(options(path));
    return report.ok() ? "no error" : std::string(report.status().message());
  }

  TempFolder folder_;
};

TEST_F(SftTokenizing, HasTheIdsAndWeightsOfTransformers) {
  const auto report = tokenize_files(options(golden_folder() + "/sft/samples.jsonl"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->chat_template, HasSubstr("chatml.jinja"));
  const auto dataset = TokenDataset::open(folder_.file("sft"), 1000);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const GoldenFile golden("sft/sft.safetensors");
  const auto ids = golden.tensor<int32_t>("ids");
  ASSERT_EQ((*dataset)->tokens(), ids.size());
  std::vector<int32_t> read(ids.size());
  std::vector<float> weights(ids.size());
  ASSERT_TRUE((*dataset)->read(0, read).ok());
  ASSERT_TRUE((*dataset)->read_weights(0, weights).ok());
  EXPECT_EQ(read, ids);
  EXPECT_EQ(weights, golden.tensor<float>("weights"));
  const auto lengths = golden.tensor<int32_t>("lengths");
  ASSERT_EQ((*dataset)->documents(), lengths.size());
  for (size_t d = 0; d < lengths.size(); ++d) {
    const auto range = (*dataset)->document(d);
    ASSERT_TRUE(range.ok());
    EXPECT_EQ(range->end - range->begin, static_cast<uint64_t>(lengths[d])) << d;
  }
}

TEST_F(SftTokenizing, BadSamplesNameTheLine) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"prompt": "a"})", "has no completion: it has \"prompt\""},
      {R"({"prompt": "a", "completion": ""})",
       "has no completion: \"completion\" is an empty text"},
      {R"({"prompt": "a", "completion": 3})", "neither two texts nor two lists of messages"},
      {R"({"question": "a", "answer": "b"})",
       "is no sample for fine-tuning: it has \"question\", \"answer\", but neither \"messages\""},
      {R"({"messages": "a"})", "has a field \"messages\" that is no list of messages"},
      {R"({"messages": [{"role": "user", "content": "a"}]})",
       "has no completion: no message has the role \"assistant\""},
      {R"({"messages": [{"content": "a"}]})", "has a message 1 in \"messages\" that is no object"},
      {R"({"messages": [{"role": "assistant"}]})",
       "has a message 1 in \"messages\" without \"content\""},
      {R"({"prompt": "a", "completion": "b", "weight": -1})", "has the weight -1; a number from 0"},
      {R"({"prompt": "a", "completion": "b", "weight": 0})", "no token has a weight above 0"},
      {R"({"text": ""})", "has a \"text\" that is no text, or is empty"},
      {R"({"text": )", "is not JSON, or not UTF-8"},
      {R"([1])", "is JSON, but no object"},
  };
  for (const auto& [line, message] : kCases) {
    EXPECT_THAT(error_of(line), HasSubstr("bad.jsonl:2 (byte 35) ")) << line;
    EXPECT_THAT(error_of(line), HasSubstr(message)) << line;
  }
  EXPECT_THAT(error_of(R"({"prompt": "a"})"), HasSubstr("--bad-documents skip leaves such"));
}

// These lines would overflow the stack, or take minutes.
TEST_F(SftTokenizing, HostileSamplesEndAtALimit) {
  const auto repeated = [](const std::string& text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
  };
  const std::string deep = repeated("[", 1'000'000) + repeated("]", 1'000'000);
  std::string keys;
  for (int i = 0; i < 200'000; ++i) keys += "\"k" + std::to_string(i) + "\":0,";
  const std::string answer = R"({"role": "assistant", "content": ")" + std::string(4000, 'a');
  const std::pair<std::string, const char*> kCases[] = {
      {R"({"messages": [{"role": "user", "content": )" + deep + "}]}",
       "nests lists and objects deeper than 100 levels"},
      {R"({"prompt": "a", "completion": "b", "weight": )" + deep + "}", "deeper than 100 levels"},
      {R"({"prompt": "a", "completion": "b", "x": {)" + keys + "\"k\": 0}}", "has too many keys"},
  };
  for (const auto& [line, message] : kCases) EXPECT_THAT(error_of(line), HasSubstr(message));
  EXPECT_THAT(error_of(R"({"prompt": "[[{:\\", "completion": ")" + repeated("[", 200) + "\"}"),
              HasSubstr("no error"));

  std::ofstream(folder_.file("a.jsonl"))
      << R"({"messages": [)" << repeated(answer + "\"},", 2000) << answer << "\"}]}";
  TokenizeOptions with = options(folder_.file("a.jsonl"));
  with.chat_template = folder_.file("t.jinja");
  std::ofstream(folder_.file("t.jinja")) << "{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_THAT(std::string(tokenize_files(with).status().message()),
              HasSubstr("is rendered twice for each of 2001 answers"));
}

TEST_F(SftTokenizing, TheBeginningIsNotDoubledAndEmptyMarksCountNothing) {
  const auto tokenizer = Tokenizer::load(options("").tokenizer_path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto encode = [&](const SftText& sample, bool add_bos) {
    SftFormat format;
    format.add_bos = add_bos;
    std::pair<std::vector<int32_t>, std::vector<float>> out;
    const auto status =
        SftEncoder(**tokenizer, format, /*add_eos=*/false).append(sample, out.first, out.second);
    EXPECT_TRUE(status.ok()) << status;
    return out;
  };
  const SftText plain{"hello world", {{0, 11}}};
  const SftText with_bos{"<|begin_of_text|>hello world", {{0, 28}}};
  EXPECT_EQ(encode(with_bos, true).first, encode(plain, true).first);
  EXPECT_EQ(encode(with_bos, true).first, encode(with_bos, false).first);
  EXPECT_EQ(encode(plain, true).first.size(), encode(plain, false).first.size() + 1);

  const WeightedSpan end{5, 11, 1, true};
  EXPECT_EQ(encode({"hello world", {{1, 1, 7, true}, end}, true}, false),
            encode({"hello world", {end}, true}, false));
}

TEST_F(SftTokenizing, SpecialTokensComeFromTheFilesBesideTheTokenizer) {
  std::ofstream(folder_.file("t.jinja")) << "{{ bos_token }}{{ messages[0].content }}";
  const auto text = [&] {
    const auto chat = chat::ChatTemplate::load({folder_.path(), folder_.file("t.jinja"), ""});
    const auto messages = nlohmann::ordered_json::parse(R"([{"role": "user", "content": "a"}])");
    const auto rendered = chat->render(messages, nullptr, false);
    return rendered.ok() ? rendered->text : std::string(rendered.status().message());
  };
  EXPECT_THAT(text(), HasSubstr("line 1: \"bos_token\" is undefined: neither"));
  std::ofstream(folder_.file("special_tokens_map.json")) << R"({"bos_token": {"content": "<s>"}})";
  EXPECT_EQ(text(), "<s>a");
  std::ofstream(folder_.file("tokenizer_config.json")) << R"({"bos_token": null})";
  EXPECT_EQ(text(), "a") << "the file states that there is no such token";
  EXPECT_THAT(
      std::string(chat::ChatTemplate::load({folder_.path(), "t.jinja", "x"}).status().message()),
      HasSubstr("use one of the two"));
}

TEST_F(SftTokenizing, BadTemplatesNameTheFileAndLine) {
  std::ofstream(folder_.file("a.jsonl"))
      << R"({"messages": [{"role": "assistant", "content": "b"}]})";
  TokenizeOptions with = options(folder_.file("a.jsonl"));
  with.chat_template = folder_.file("t.jinja");
  const auto error = [&](const char* source) {
    std::ofstream(folder_.file("t.jinja")) << source;
    return std::string(tokenize_files(with).status().message());
  };
  EXPECT_THAT(error("a\n{% if %}"), HasSubstr("t.jinja: line 2: expected an expression"));
  EXPECT_THAT(error("\n{{ raise_exception('no ' + messages[0].role) }}"),
              HasSubstr("cannot be rendered by " + folder_.file("t.jinja") +
                        ", line 2: the template refuses the conversation: no assistant"));
  EXPECT_THAT(error("{{ messages | length }}"), HasSubstr("mark what the model generates"));
  with.chat_template = "";
  EXPECT_THAT(std::string(tokenize_files(with).status().message()),
              HasSubstr("a.jsonl:1 (byte 0) has messages, but there is no chat template"));
}

// Without marks, a completion is found by rendering the messages before it.
TEST_F(SftTokenizing, FindsCompletionsWithoutMarks) {
  for (const char* const name : {"llama3", "phi3", "zephyr", "vicuna", "gemma", "llama2"}) {
    std::ofstream(folder_.file("tokenizer_config.json"))
        << R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})";
    auto chat = chat::ChatTemplate::load(
        {folder_.path(), golden_folder() + "/chat/" + name + ".jinja", ""});
    ASSERT_TRUE(chat.ok()) << chat.status();
    SftFormat format;
    format.chat.emplace(*std::move(chat));
    const auto text = sft_text(
        R"({"messages": [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "Two?"}, {"role": "assistant", "content": "No."}]})",
        format);
    ASSERT_TRUE(text.ok()) << name << ": " << text.status();
    ASSERT_EQ(text->spans.size(), 2U);
    const auto span = [&](size_t i) {
      return text->text.substr(text->spans[i].begin, text->spans[i].end - text->spans[i].begin);
    };
    EXPECT_THAT(span(0), HasSubstr("Yes.")) << name;
    EXPECT_THAT(span(0), testing::Not(HasSubstr("Two"))) << name;
    EXPECT_THAT(span(1), HasSubstr("No.")) << name;
    EXPECT_EQ(text->spans[1].end, text->text.size()) << name << ": the end of the answer counts";
  }
}

}  // namespace
}  // namespace muster::trainer
