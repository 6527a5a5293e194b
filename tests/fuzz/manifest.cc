// A checkpoint's manifest: unchanged, and with a corrected checksum, which would otherwise stop the
// fuzzer. Writing a parsed manifest reproduces it.
#include "trainer_core/checkpoint/manifest.h"

#include "tests/fuzz/target.h"

namespace {

using namespace muster::trainer;

void read(std::string_view text) {
  const auto manifest = parse_manifest(text);
  if (!manifest.ok()) return;
  for (const StoredFile& file : manifest->files) {
    MUSTER_CHECK(file.name.find('/') == std::string::npos) << file.name;
    for (const StoredBox& stored : file.boxes) {
      const auto bytes = static_cast<uint64_t>(stored.box.elements()) * sizeof(float);
      MUSTER_CHECK(stored.at <= file.digest.bytes && bytes <= file.digest.bytes - stored.at)
          << stored.box.tensor << " in " << file.name;
    }
  }
  const auto again = parse_manifest(manifest_text(*manifest));
  MUSTER_CHECK(again.ok()) << again.status().message();
  MUSTER_CHECK(again->files.size() == manifest->files.size());
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz_input(data, size);
  read(input);
  nlohmann::json json = nlohmann::json::parse(input, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return 0;
  json.erase("checksum");
  const std::string rest = json.dump();
  json["checksum"] = checksum_text(checksum({rest.data(), rest.size()}));
  read(json.dump());
  return 0;
}
