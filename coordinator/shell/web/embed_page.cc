// Writes the C++ source that embeds the files of a folder, compressed. Used by the build only:
//
//   muster-embed-page FOLDER OPENAPI OUTPUT
//
// OPENAPI is embedded as /api/v1/openapi.json. Refuses files whose type is not known, and symbolic
// links.
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include <absl/strings/escaping.h>

#include "coordinator/shell/web/gzip.h"

namespace {

namespace fs = std::filesystem;

struct Type {
  std::string_view suffix;
  std::string_view name;
};
constexpr std::array kTypes = {Type{".html", "text/html; charset=utf-8"},
                               Type{".js", "text/javascript; charset=utf-8"},
                               Type{".mjs", "text/javascript; charset=utf-8"},
                               Type{".css", "text/css; charset=utf-8"},
                               Type{".svg", "image/svg+xml"},
                               Type{".png", "image/png"},
                               Type{".ico", "image/x-icon"},
                               Type{".json", "application/json"},
                               Type{".map", "application/json"},
                               Type{".woff2", "font/woff2"},
                               Type{".txt", "text/plain; charset=utf-8"},
                               Type{".md", "text/plain; charset=utf-8"}};
// A file above this is a mistake: the whole page has a few hundred kilobytes.
constexpr size_t kFileBytesMax = 4 << 20;

int fail(const fs::path& path, const std::string& why) {
  std::cerr << "muster-embed-page: " << path.string() << ": " << why << "\n";
  return 1;
}

std::string hash_of(const std::string& text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  constexpr size_t kShown = 16;
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), kShown});
}

std::string bytes_of(const std::string& data) {
  std::string out;
  for (size_t i = 0; i < data.size(); ++i) {
    out += std::to_string(static_cast<unsigned char>(data[i]));
    out += i % 32 == 31 ? ",\n" : ",";
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return fail("usage", "muster-embed-page FOLDER OPENAPI OUTPUT");
  const fs::path folder = argv[1];
  std::map<std::string, fs::path> files = {{"/api/v1/openapi.json", argv[2]}};
  if (fs::is_directory(folder)) {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_directory() && !entry.is_symlink()) continue;
      if (!entry.is_regular_file() || entry.is_symlink())
        return fail(entry.path(), "is no regular file");
      files["/" + fs::relative(entry.path(), folder).generic_string()] = entry.path();
    }
  }
  std::string arrays, table;
  int number = 0;
  for (const auto& [name, path] : files) {
    const auto type = std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& one) {
      return path.extension().string() == one.suffix;
    });
    if (type == kTypes.end()) return fail(path, "has a suffix without a known type");
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file) return fail(path, "cannot be read");
    if (text.size() > kFileBytesMax) return fail(path, "is too large");
    const std::string gzip =
        muster::coordinator::gzipped(text, muster::coordinator::GzipLevel::kSmallest);
    if (gzip.empty()) return fail(path, "cannot be compressed");
    const std::string array = "kFile" + std::to_string(number++);
    arrays += "const unsigned char " + array + "[] = {\n" + bytes_of(gzip) + "};\n";
    table += "    {\"" + name + "\", \"" + std::string(type->name) + "\", \"\\\"" + hash_of(text) +
             "\\\"\", {reinterpret_cast<const char*>(" + array + "), sizeof(" + array + ")}},\n";
  }
  std::ofstream out(argv[3], std::ios::binary);
  out << "#include \"coordinator/shell/web/page_files.h\"\n\nnamespace muster::coordinator {\n"
      << "namespace {\n\n"
      << arrays << "\nconst PageFile kPageFiles[] = {\n"
      << table << "};\n\n}  // namespace\n\n"
      << "std::span<const PageFile> page_files() { return kPageFiles; }\n\n"
      << "}  // namespace muster::coordinator\n";
  out.flush();
  return out ? 0 : fail(argv[3], "cannot be written");
}
