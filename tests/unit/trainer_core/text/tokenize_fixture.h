// A text and a tokenizer that was trained on it, made once for all tests of a program.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "trainer_core/text/tokenize.h"
#include "trainer_core/text/train_tokenizer.h"

namespace muster::trainer {

constexpr int32_t kVocab = 350;

inline std::string corpus(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    text += "And it came to pass in the year " + std::to_string(i * 7919 % 1000) +
            " that the people spake unto him";
    text += i % 3 == 0 ? ", saying, Behold.\n" : ".\n\n";
  }
  return text;
}

// The fixture with the text and the tokenizer.
class TokenizeFixture : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    write_file(folder_->file("text.txt"), corpus(3000));
    const auto report = train_tokenizer({.input = folder_->file("text.txt"),
                                         .vocab_size = kVocab,
                                         .output = folder_->file("t.model")});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->sentences, 3000U);
  }
  static void TearDownTestSuite() { delete folder_; }

  static TokenizeOptions options(const std::string& output) {
    TokenizeOptions options;
    options.inputs = {folder_->file("text.txt")};
    options.tokenizer_path = folder_->file("t.model");
    options.output_directory = folder_->file(output);
    return options;
  }
  static inline TempFolder* folder_ = nullptr;
};

}  // namespace muster::trainer
