#include "common/objects/object_url.h"

#include <algorithm>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"

namespace muster {
namespace {

constexpr std::string_view kSchemes[] = {"s3", "gs"};
// S3's limit of a key.
constexpr size_t kKeyBytesMax = 1024;

absl::Status invalid(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(av(text), ": ", av(why)));
}

}  // namespace

bool is_object_url(std::string_view path) {
  return std::ranges::any_of(kSchemes, [&](std::string_view scheme) {
    return path.starts_with(scheme) && path.substr(scheme.size()).starts_with("://");
  });
}

std::string ObjectUrl::text() const {
  return absl::StrCat(scheme, "://", bucket, key.empty() ? "" : "/", key);
}

std::string ObjectUrl::name() const {
  return key.empty() ? bucket : key.substr(key.rfind('/') + 1);
}

absl::StatusOr<ObjectUrl> parse_object_url(std::string_view text) {
  if (!is_object_url(text))
    return invalid(text,
                   "not an address in an object store; expected s3://BUCKET/KEY or "
                   "gs://BUCKET/KEY");
  const size_t colon = text.find("://");
  std::string_view rest = text.substr(colon + 3);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t slash = rest.find('/');
  ObjectUrl url{.scheme = std::string(text.substr(0, colon)),
                .bucket = std::string(rest.substr(0, slash)),
                .key = slash == rest.npos ? "" : std::string(rest.substr(slash + 1))};
  if (url.bucket.empty()) return invalid(text, "the bucket is missing; expected s3://BUCKET/KEY");
  const auto is_bucket_character = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_';
  };
  if (!std::ranges::all_of(url.bucket, is_bucket_character))
    return invalid(text, "a bucket's name has letters, digits, '-', '.' and '_'");
  if (url.key.size() > kKeyBytesMax)
    return invalid(text, absl::StrCat("the key has more than ", kKeyBytesMax, " bytes"));
  if (std::ranges::any_of(url.key, [](char c) { return static_cast<unsigned char>(c) < ' '; }))
    return invalid(text, "the key has a control character");
  if (url.key.empty()) return url;
  for (const absl::string_view part : absl::StrSplit(url.key, '/')) {
    if (part.empty() || part == "." || part == "..")
      return invalid(text, "the key has an empty or relative component ('//', '.' or '..')");
  }
  return url;
}

std::string without_user(std::string address) {
  const size_t scheme = address.find("://");
  const size_t host = scheme == address.npos ? 0 : scheme + 3;
  const size_t at = address.substr(0, address.find('/', host)).rfind('@');
  if (at != address.npos && at >= host) address.replace(host, at - host, "***");
  return address;
}

}  // namespace muster
