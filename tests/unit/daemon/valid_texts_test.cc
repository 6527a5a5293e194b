#include "daemon/valid_texts.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

#include "common/text/escape.h"
#include "muster/v1/muster.pb.h"

namespace muster::daemon {
namespace {

// Host names and other texts of a system, and what a receiver gets.
struct TextCase {
  const char* name;
  std::string text;
  const char* valid;
};

const TextCase kTextCases[] = {
    {"a host's name in Latin-1", "caf\xE9", "caf\\xe9"},
    {"a plain name", "node-7", "node-7"},
    {"UTF-8", "n\xC5\x93ud \xE4\xB8\x96", "n\xC5\x93ud \xE4\xB8\x96"},
    {"a character that is cut", "node \xE4\xB8", "node \\xe4\\xb8"},
    {"UTF-16", std::string("\xFF\xFEn\0", 4), nullptr},
    {"a surrogate", "\xED\xA0\x80", "\\xed\\xa0\\x80"},
    {"controls stay", "a\tb\n\x1b", "a\tb\n\x1b"},
    {"empty", "", ""},
};

std::string valid_text_of(const TextCase& one) {
  return one.valid != nullptr ? one.valid : std::string("\\xff\\xfen\0", 10);
}

// Sends the message as a stream does.
v1::WorkerMessage received(v1::WorkerMessage message) {
  make_texts_valid(message);
  v1::WorkerMessage other_side;
  EXPECT_TRUE(other_side.ParseFromString(message.SerializeAsString()));
  return other_side;
}

TEST(ValidTexts, EveryTextOfTheSystemArrives) {
  for (const TextCase& one : kTextCases) {
    v1::WorkerMessage message;
    v1::Register& worker = *message.mutable_register_();
    worker.set_host(one.text);
    worker.set_worker(one.text);
    worker.add_gpus()->set_name(one.text);
    const v1::WorkerMessage other_side = received(message);
    EXPECT_EQ(other_side.register_().host(), valid_text_of(one)) << one.name;
    EXPECT_EQ(other_side.register_().worker(), valid_text_of(one)) << one.name;
    EXPECT_EQ(other_side.register_().gpus(0).name(), valid_text_of(one)) << one.name << ", nested";
  }
}

TEST(ValidTexts, BytesStayAsTheyAre) {
  v1::WorkerMessage message;
  message.mutable_log()->set_data("caf\xE9\xFF");
  EXPECT_EQ(received(message).log().data(), "caf\xE9\xFF");
}

TEST(ValidTexts, MapsAndListsAreValid) {
  v1::JobSpec spec;
  (*spec.mutable_environment())["LANG"] = "fr\xE9";
  spec.add_command("caf\xE9");
  make_texts_valid(spec);
  v1::JobSpec other_side;
  ASSERT_TRUE(other_side.ParseFromString(spec.SerializeAsString()));
  EXPECT_EQ(other_side.environment().at("LANG"), "fr\\xe9");
  EXPECT_EQ(other_side.command(0), "caf\\xe9");
}

// Valid bytes of any text stay, and nothing is lost: each invalid byte is four characters.
TEST(ValidTexts, RandomBytes) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (size_t bytes = random() % 40; bytes > 0; --bytes)
      text += static_cast<char>(random() % 4 == 0 ? random() : 'a' + random() % 26);
    const std::string valid = valid_utf8(text);
    EXPECT_TRUE(is_valid_utf8(valid));
    EXPECT_EQ(valid_utf8(valid), valid);
    EXPECT_EQ(valid == text, is_valid_utf8(text));
    EXPECT_EQ((valid.size() - text.size()) % 3, 0U);
  }
}

}  // namespace
}  // namespace muster::daemon
