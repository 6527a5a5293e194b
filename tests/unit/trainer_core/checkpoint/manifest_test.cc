#include "trainer_core/checkpoint/manifest.h"

#include <gmock/gmock.h>

#include <functional>

#include <gtest/gtest.h>

#include "tests/unit/mutate.h"

namespace muster::trainer {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

// A matrix in two files and a vector; two blocks.
Json good_manifest() {
  return Json::parse(R"({
    "format": "muster-checkpoint", "version": 3, "step": 5, "samples": 40, "optimizer": "sgd",
    "config": {"steps": 100, "learning_rate": 0.0003}, "block_bytes": 4194304,
    "tensors": {"model": {"w": {"dtype": "F32", "shape": [4, 3]}, "b": {"dtype": "F32", "shape": [3]}},
                "optimizer": {}},
    "files": [
      {"name": "a.safetensors", "part": "model", "bytes": 4194404,
       "xxh3": ["0000000000000001", "ffffffffffffffff"],
       "boxes": [{"tensor": "w", "begin": [0, 0], "extent": [3, 3], "at": 64},
                 {"tensor": "b", "begin": [0], "extent": [3], "at": 4194392}]},
      {"name": "b.safetensors", "part": "model", "bytes": 100, "xxh3": ["2d06800538d394c2"],
       "boxes": [{"tensor": "w", "begin": [3, 0], "extent": [1, 3], "at": 88}]}]})");
}

// Adds the checksum that the manifest's writer would have added.
std::string signed_text(Json manifest) {
  const std::string text = manifest.dump();
  manifest["checksum"] = checksum_text(checksum({text.data(), text.size()}));
  return manifest.dump(2);
}

std::string problem_of(const std::function<void(Json&)>& change) {
  Json manifest = good_manifest();
  change(manifest);
  return std::string(parse_manifest(signed_text(manifest)).status().message());
}

TEST(Manifest, RoundTrips) {
  const auto manifest = parse_manifest(signed_text(good_manifest()));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->info.step, 5);
  EXPECT_EQ(manifest->info.samples, 40U);
  ASSERT_EQ(manifest->files.size(), 2U);
  EXPECT_EQ(manifest->files[0].digest.blocks, (std::vector<uint64_t>{1, ~uint64_t{0}}));
  EXPECT_EQ(manifest->files[1].boxes[0].box.begin, (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(manifest->tensors(CheckpointPart::kModel).at("w").shape, (std::vector<int64_t>{4, 3}));
  Json again = Json::parse(manifest_text(*manifest));
  again.erase("checksum");
  EXPECT_EQ(again, good_manifest());
}

TEST(Manifest, EveryWrongFieldIsNamed) {
  const auto file = [](Json& m) -> Json& { return m["files"][0]; };
  const auto box = [&](Json& m) -> Json& { return file(m)["boxes"][0]; };
  const std::pair<std::function<void(Json&)>, const char*> cases[] = {
      {[](Json& m) { m["step"] = -1; }, "step is -1, which is no count"},
      {[](Json& m) { m["step"] = 1.5; }, "step is 1.5"},
      {[](Json& m) { m["step"] = ~uint64_t{0}; }, "step is 18446744073709551615"},
      {[](Json& m) { m["samples"] = "8"; }, "samples is \"8\""},
      {[](Json& m) { m["block_bytes"] = 1; }, "block_bytes is 1; it must be 4194304"},
      {[](Json& m) { m["tensors"]["model"]["w"]["dtype"] = "I64"; },
       "tensor w has dtype \"I64\"; this program reads F32"},
      {[](Json& m) {
         m["tensors"]["model"]["w"]["shape"] = {4, 0};
       },
       "tensor w's shape is [4,0]"},
      {[](Json& m) {
         m["tensors"]["model"]["w"]["shape"] = {int64_t{1} << 40, int64_t{1} << 40};
       },
       "tensor w's shape is"},
      {[](Json& m) { m["tensors"]["model"]["w"]["shape"] = Json::array({~uint64_t{0}}); },
       "tensor w's shape has a size of 18446744073709551615"},
      {[](Json& m) { m["tensors"]["model"]["w"]["shape"] = std::vector<int>(9, 1); },
       "tensor w's shape is no short list"},
      {[](Json& m) {
         m["tensors"]["model"]["lost"] = {{"dtype", "F32"}, {"shape", {2}}};
       },
       "the boxes of tensor lost have 0 of its 2 elements"},
      {[&](Json& m) { file(m)["name"] = "../../etc/passwd"; }, "a file's name is \"../../etc/pass"},
      {[&](Json& m) { file(m)["name"] = "b.safetensors"; }, "b.safetensors is listed twice"},
      {[&](Json& m) { file(m)["part"] = "other"; }, "a file's part is \"other\""},
      {[&](Json& m) { file(m)["bytes"] = ~uint64_t{0}; },
       "a.safetensors has 18446744073709551615 bytes and 2 checksums instead of 4398046511104"},
      {[&](Json& m) { file(m)["bytes"] = 100; }, "2 checksums instead of 1"},
      {[&](Json& m) { file(m)["xxh3"][0] = "xyz"; }, "has the checksum \"xyz\""},
      {[&](Json& m) { box(m)["tensor"] = "v"; }, "the box of v is of a tensor that is not listed"},
      {[&](Json& m) {
         box(m)["begin"] = {2, 0};
       },
       "begins at [2,0] with sizes [3,3]"},
      {[&](Json& m) { box(m)["begin"] = {0}; }, "not inside the tensor"},
      {[&](Json& m) {
         box(m)["extent"] = {0, 3};
       },
       "not inside the tensor"},
      {[&](Json& m) {
         box(m)["extent"] = {2, 3};
       },
       "the boxes of tensor w have 9 of its 12"},
      {[&](Json& m) {
         m["files"][1]["boxes"][0]["begin"] = {2, 0};
       },
       "two boxes of tensor w overlap"},
      {[&](Json& m) { box(m)["at"] = 62; }, "36 bytes from byte 62 on"},
      {[&](Json& m) { box(m)["at"] = 4194404; }, "36 bytes from byte 4194404 on, in a file of"},
      {[&](Json& m) { box(m)["at"] = ~uint64_t{3}; }, "from byte 18446744073709551612 on"},
  };
  for (const auto& [change, expected] : cases) EXPECT_THAT(problem_of(change), HasSubstr(expected));
}

TEST(Manifest, AnotherVersionIsNoDamage) {
  Json manifest = good_manifest();
  manifest["version"] = 2;  // which had no checksum
  const auto status = parse_manifest(manifest.dump()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("it has version 2; this program reads 3: made by an earlier build"));
}

TEST(Manifest, AnyFlipIsSeen) {
  const std::string good = signed_text(good_manifest());
  EXPECT_TRUE(parse_manifest(good).ok());
  std::string edited = good;
  edited.replace(edited.find("\"samples\": 40"), 13, "\"samples\": 41");
  EXPECT_EQ(parse_manifest(edited).status().message(),
            "manifest.json is damaged: its checksum differs");
}

// Damage with a checksum that is right for it, which only an adversary makes, is refused or is a
// whole checkpoint.
TEST(Manifest, MutatedOnesAreRefusedOrComplete) {
  const std::string good = good_manifest().dump();
  Mutator mutator(3);
  int understood = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Json bad = Json::parse(mutator.mutate(good), nullptr, /*allow_exceptions=*/false);
    if (!bad.is_object()) continue;
    std::string text;
    try {
      text = signed_text(bad);
    } catch (const Json::exception&) {
      continue;  // no UTF-8
    }
    const auto manifest = parse_manifest(text);
    if (!manifest.ok()) continue;
    ++understood;
    for (const StoredFile& file : manifest->files) {
      for (const StoredBox& stored : file.boxes) {
        ASSERT_LE(stored.at + static_cast<uint64_t>(stored.box.elements()) * sizeof(float),
                  file.digest.bytes);
      }
    }
  }
  EXPECT_GT(understood, 100);
}

}  // namespace
}  // namespace muster::trainer
