// Addresses in object stores: s3://BUCKET/KEY and gs://BUCKET/KEY. Thread-safe; no state.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster {

// Returns whether `path` is an address instead of a path of the file system, in whatever scheme.
inline bool is_remote(std::string_view path) { return path.find("://") != std::string_view::npos; }

// Returns whether `path` is an address in an object store that Muster uses.
bool is_object_url(std::string_view path);

struct ObjectUrl {
  std::string scheme;  // "s3" or "gs"
  std::string bucket;
  std::string key;  // without slashes at its ends; empty: the bucket

  // "s3://bucket/key"
  std::string text() const;
  // The last component: of the key, or the bucket.
  std::string name() const;
};

// InvalidArgument names the part that is wrong: another scheme, no bucket, an empty or relative
// component, or a control character.
absl::StatusOr<ObjectUrl> parse_object_url(std::string_view text);

// Returns a server's address without the user and the password that it may contain.
std::string without_user(std::string address);

}  // namespace muster
