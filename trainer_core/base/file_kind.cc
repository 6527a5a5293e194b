#include "trainer_core/base/file_kind.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/text/absl_view.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// A pointer's first line by specification: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md,
// and its two names before 1.0.
constexpr std::string_view kLfsVersions[] = {"version https://git-lfs.github.com/spec/",
                                             "version https://hawser.github.com/spec/",
                                             "version http://git-media.io/v/"};
// The pointers of Hugging Face's Xet storage, which stand where Git LFS has its own.
constexpr std::string_view kXetPointer = "# xet version ";
// The content of a git-annex pointer file.
constexpr std::string_view kAnnexPointer = "/annex/objects/";
constexpr char kAnnexFolder[] = ".git/annex/objects";

struct Format {
  std::string_view magic;
  std::string_view what;
  std::string_view remedy;
};
constexpr std::string_view kSaveAsSafetensors =
    "load it with transformers and save it as safetensors: "
    "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW)";
constexpr Format kFormats[] = {
    {"GGUF", "a GGUF file, llama.cpp's format",
     "take the Hugging Face folder that it was made from"},
    {"tjgg", "a GGJT file, an old format of llama.cpp",
     "take the Hugging Face folder that it was made from"},
    {"PK\x03\x04", "a zip archive, such as PyTorch's .bin and .pth", kSaveAsSafetensors},
    {"\x80\x02", "a pickle, such as PyTorch's old .bin and .pth", kSaveAsSafetensors},
    {"\x80\x03", "a pickle, such as PyTorch's old .bin and .pth", kSaveAsSafetensors},
    {"\x80\x04", "a pickle, such as PyTorch's old .bin and .pth", kSaveAsSafetensors},
    {"\x80\x05", "a pickle, such as PyTorch's old .bin and .pth", kSaveAsSafetensors},
    {"\x89HDF\r\n", "an HDF5 file, Keras's format",
     "load it with transformers (from_tf=True) and save it as safetensors"},
    {"\x93NUMPY", "a NumPy array", "take a folder with model.safetensors"},
    {"\x1F\x8B", "compressed with gzip", "decompress it first"},
    {"\x28\xB5\x2F\xFD", "compressed with zstd", "decompress it first"},
    {"BZh", "compressed with bzip2", "decompress it first"},
    {"\xFD\x37\x7A\x58\x5A", "compressed with xz", "decompress it first"},
};

constexpr std::string_view kWebPages[] = {"<!doctype html", "<html", "<?xml", "<head"};
constexpr std::string_view kWebPage =
    "this is a web page, not the file: the download failed or requires a login; download it again";

// Returns a small text as an editor or a shell may have changed it: without byte order marks and
// blanks in front, and of UTF-16 its ASCII characters.
std::string plain_text(std::string_view begins) {
  const bool is_wide = begins.starts_with("\xFF\xFE") || begins.starts_with("\xFE\xFF");
  std::string text;
  for (const char c : begins) {
    const auto byte = static_cast<uint8_t>(c);
    if (!is_wide || (byte > 0 && byte < 0x80)) text += c;
  }
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  while (text.starts_with(kMark)) text.erase(0, kMark.size());
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

bool is_lfs_pointer(std::string_view text) {
  const bool has_version =
      std::any_of(std::begin(kLfsVersions), std::end(kLfsVersions),
                  [&](std::string_view version) { return text.starts_with(version); });
  return has_version && text.find("\noid ") != std::string_view::npos;
}

// A length below 4 GiB and a JSON object behind it: the length may begin like another format.
bool is_safetensors(std::string_view begins) {
  constexpr size_t kJson = 8;
  return begins.size() > kJson && begins[kJson] == '{' &&
         begins.substr(4, 4) == std::string_view("\0\0\0\0", 4);
}

bool is_web_page(std::string_view begins) {
  const size_t first = begins.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return false;
  const std::string_view text = begins.substr(first);
  return std::any_of(std::begin(kWebPages), std::end(kWebPages), [&](std::string_view page) {
    return absl::StartsWithIgnoreCase(av(text), av(page));
  });
}

// An unfinished download beside the path; "" if there is none.
std::string unfinished_beside(const fs::path& path) {
  std::error_code error;
  for (const char* ending : {".incomplete", ".part", ".partial", ".aria2", ".crdownload", ".tmp"}) {
    const std::string name = absl::StrCat(path.string(), ending);
    if (fs::exists(name, error)) return name;
  }
  return "";
}

// Returns a sentence for a file that refers to data elsewhere; "" for any other file.
std::string pointer_problem(std::string_view begins, uint64_t file_bytes) {
  if (file_bytes > kFileKindBytes) return "";
  const std::string text = plain_text(begins);
  if (is_lfs_pointer(text)) {
    return "this is a Git LFS pointer: run git lfs pull in its repository, or download the file "
           "itself";
  }
  if (text.starts_with(kXetPointer)) {
    return "this is a pointer of git-xet: download the file itself, with hf download";
  }
  if (text.starts_with(kAnnexPointer))
    return "this is a git-annex pointer: run git annex get in its repository";
  return "";
}

}  // namespace

std::string first_bytes(const std::string& path) {
  std::string bytes(kFileKindBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

std::string foreign_file_problem(std::string_view begins, uint64_t file_bytes) {
  if (file_bytes == 0) return "this file is empty: its download failed; download it again";
  if (std::string problem = pointer_problem(begins, file_bytes); !problem.empty()) return problem;
  if (is_safetensors(begins)) return "";
  if (is_web_page(begins)) return std::string(kWebPage);
  for (const Format& format : kFormats) {
    if (begins.starts_with(format.magic))
      return absl::StrCat("this is ", av(format.what), ": ", av(format.remedy));
  }
  if (begins.find_first_not_of('\0') == std::string_view::npos && begins.size() > sizeof(uint64_t))
    return "this file begins with zeros only: its download is incomplete; download it again";
  return "";
}

absl::Status check_no_pointer(const std::string& path, std::string_view begins,
                              uint64_t file_bytes) {
  const std::string problem = pointer_problem(begins, file_bytes);
  if (problem.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", problem));
}

absl::Status check_no_web_page(const std::string& path, std::string_view begins) {
  if (!is_web_page(begins)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", av(kWebPage)));
}

std::string dangling_problem(const std::string& path) {
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(path, error)) || fs::exists(path, error)) return "";
  const fs::path target = fs::read_symlink(path, error);
  const std::string text =
      absl::StrCat("it is a symbolic link to ", target.string(), ", which does not exist");
  if (absl::StrContains(target.string(), kAnnexFolder))
    return absl::StrCat(text, ": run git annex get in its repository");
  const fs::path absolute = target.is_absolute() ? target : fs::path(path).parent_path() / target;
  if (const std::string unfinished = unfinished_beside(absolute); !unfinished.empty()) {
    return absl::StrCat(text, ": its download stopped (", unfinished,
                        "); repeat hf download, which continues it");
  }
  if (absl::StrContains(target.string(), "blobs/")) {
    return absl::StrCat(text,
                        ": a cache of the Hugging Face Hub was copied without its blobs, or the "
                        "download did not finish; repeat hf download, or copy with cp -rL");
  }
  return text;
}

absl::Status open_failure(int error, const std::string& path) {
  const std::string what = absl::StrCat("cannot open ", path);
  if (error != ENOENT && error != ELOOP) return errno_status(error, what);
  if (const std::string problem = dangling_problem(path); !problem.empty())
    return absl::NotFoundError(absl::StrCat(what, ": ", problem));
  if (const std::string unfinished = unfinished_beside(path); !unfinished.empty()) {
    return absl::NotFoundError(
        absl::StrCat(what, ": its download stopped (", unfinished, "); repeat the download"));
  }
  return errno_status(error, what);
}

bool is_unfinished_download(std::string_view name) {
  for (const std::string_view ending :
       {".incomplete", ".part", ".partial", ".aria2", ".crdownload", ".download"}) {
    if (absl::EndsWithIgnoreCase(av(name), av(ending))) return true;
  }
  return false;
}

}  // namespace muster::trainer
