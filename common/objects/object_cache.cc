#include "common/objects/object_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/files/free_space.h"
#include "common/files/user_cache.h"
#include "common/random/fnv.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr char kPart[] = ".part";
constexpr Duration kLockInterval = std::chrono::milliseconds(200);
// The copies are the user's own.
constexpr mode_t kLockMode = 0600;

// Returns a name for a folder or file.
std::string hash_of(std::string_view bytes) {
  return absl::StrCat(absl::Hex(fnv1a(bytes), absl::kZeroPad16));
}

absl::Status make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return file_status(error.value(),
                     absl::StrCat("cannot make folder ", folder.string(),
                                  " for copies of objects (MUSTER_OBJECT_CACHE sets another)"));
}

// Opens a lock file, and waits for its lock. The lock lasts until the descriptor is closed.
absl::StatusOr<int> lock_file(const std::string& path, int kind,
                              const std::function<void()>& on_wait) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kLockMode);
  if (fd < 0) return file_status(errno, absl::StrCat("cannot open ", path));
  while (flock(fd, kind | LOCK_NB) != 0) {
    // A file system without locks: concurrent calls transfer twice, and rename complete files.
    if (errno != EWOULDBLOCK && errno != EINTR) return fd;
    if (on_wait) on_wait();
    std::this_thread::sleep_for(kLockInterval);
  }
  return fd;
}

// Returns a function for lock_file() that calls events.on_wait with the folder, then with "".
// `events` must outlive it.
std::function<void()> announce_wait(const FetchEvents& events, std::string folder) {
  return [&events, folder = std::move(folder), announced = false]() mutable {
    if (events.on_wait) events.on_wait(std::exchange(announced, true) ? "" : folder);
  };
}

bool has_size(const fs::path& file, uint64_t bytes) {
  std::error_code error;
  const uint64_t actual = fs::file_size(file, error);
  return !error && actual == bytes;
}

bool is_complete(const fs::path& folder, const std::vector<StoredObject>& objects) {
  return std::ranges::all_of(objects, [&](const StoredObject& object) {
    return has_size(folder / object.name, object.bytes);
  });
}

uint64_t bytes_below(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unknown;
    const uint64_t size = entry->is_regular_file(unknown) ? entry->file_size(unknown) : 0;
    if (!unknown) bytes += size;
  }
  return bytes;
}

// Names come from the store: none may lead out of the folder.
absl::Status check_names(const std::string& url, const std::vector<StoredObject>& objects) {
  for (const StoredObject& object : objects) {
    const fs::path name(object.name);
    const bool leaves =
        name.is_absolute() || std::any_of(name.begin(), name.end(), [](const fs::path& part) {
          return part == ".." || part == kPart;
        });
    if (leaves)
      return absl::InvalidArgumentError(
          absl::StrCat(url, " has an object that cannot be a file here: ", object.name));
  }
  return absl::OkStatus();
}

absl::Status check_room(const std::string& url, const std::string& folder, uint64_t bytes) {
  const auto available = free_space_bytes(folder);
  if (!available || *available >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("no room for a copy of ", url, " in ", folder, missing_room(available, bytes),
                   "; MUSTER_OBJECT_CACHE=FOLDER sets another folder"));
}

struct Listing {
  std::vector<StoredObject> objects;
  bool is_object = false;  // the address is one object, and no prefix
  std::string hash;
};

absl::StatusOr<Listing> list_url(const ObjectStore& store, const std::string& url) {
  auto objects = store.list(url);
  if (!objects.ok()) return objects.status();
  if (objects->empty()) return absl::NotFoundError(absl::StrCat("there is nothing at ", url));
  if (auto status = check_names(url, *objects); !status.ok()) return status;
  Listing listing;
  std::string text;
  for (const StoredObject& object : *objects)
    absl::StrAppend(&text, object.name, "\n", object.bytes, "\n", object.changed, "\n");
  listing.hash = hash_of(text);
  const auto parsed = parse_object_url(url);
  listing.is_object = parsed.ok() && objects->size() == 1 && !absl::EndsWith(url, "/") &&
                      (*objects)[0].name == parsed->name();
  listing.objects = *std::move(objects);
  return listing;
}

// The parent address of an object, below which it has its name.
std::string parent_of(const std::string& url) { return url.substr(0, url.rfind('/')); }

// Shares the generation until this process ends.
absl::Status use_generation(const fs::path& generation) {
  return lock_file(generation / ".lock", LOCK_SH, nullptr).status();
}

void remove_other_generations(const fs::path& folder, const std::string& present) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path path = entry->path();
    if (path.filename() == present || !fs::is_directory(path, error)) continue;
    const int fd = open((path / ".lock").c_str(), O_RDONLY | O_CLOEXEC);
    const absl::Cleanup close_lock = [fd] {
      if (fd >= 0) close(fd);
    };
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) continue;
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
}

std::string path_of(const Listing& listing, const fs::path& generation) {
  return listing.is_object ? (generation / listing.objects[0].name).string() : generation.string();
}

}  // namespace

std::string object_cache_folder() {
  if (const char* folder = std::getenv("MUSTER_OBJECT_CACHE");
      folder != nullptr && folder[0] != '\0')
    return fs::absolute(folder).lexically_normal().string();
  if (std::string cache = user_cache_folder(); !cache.empty()) return cache + "/objects";
  std::error_code error;
  return (fs::temp_directory_path(error) / absl::StrCat("muster-objects-", getuid())).string();
}

std::string folder_of_url(const std::string& root, const std::string& url) {
  std::string name = "object";
  std::string key = url;
  if (const auto parsed = parse_object_url(url); parsed.ok()) {
    name = parsed->name();
    key = parsed->text();
  }
  // The same bucket of another endpoint is another bucket.
  for (const char* endpoint :
       {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST"}) {
    const char* value = std::getenv(endpoint);
    absl::StrAppend(&key, "\n", value == nullptr ? "" : value);
  }
  constexpr size_t kNameBytesMax = 64;
  return absl::StrCat(root, "/", name.substr(0, kNameBytesMax), "-", hash_of(key));
}

std::string local_output_folder(const std::string& output) {
  if (!is_remote(output)) return output;
  return folder_of_url(object_cache_folder() + "/outputs", output);
}

absl::Status fetch_objects(const ObjectStore& store, const std::string& url,
                           const std::vector<StoredObject>& objects, const std::string& folder,
                           const FetchEvents& events) {
  if (auto status = check_names(url, objects); !status.ok()) return status;
  const fs::path part = fs::path(folder) / kPart;
  if (auto status = make_folder(part); !status.ok()) return status;
  std::vector<int> locks;
  const absl::Cleanup unlock = [&] {
    for (const int fd : locks) close(fd);
  };
  std::vector<std::string> names;
  uint64_t total = 0;
  const std::function<void()> wait = announce_wait(events, folder);
  std::vector<StoredObject> sorted = objects;
  std::ranges::sort(sorted, {}, &StoredObject::name);  // all processes lock in this order
  for (const StoredObject& object : sorted) {
    const fs::path file = fs::path(folder) / object.name;
    if (has_size(file, object.bytes)) continue;
    const auto lock =
        lock_file(absl::StrCat(part.string(), "/.lock-", hash_of(object.name)), LOCK_EX, wait);
    if (!lock.ok()) return lock.status();
    locks.push_back(*lock);
    if (has_size(file, object.bytes)) continue;
    names.push_back(object.name);
    total += object.bytes;
  }
  if (names.empty()) return absl::OkStatus();
  // An earlier call's bytes count as present.
  const uint64_t present = std::min(bytes_below(part), total);
  if (auto status = check_room(url, folder, total - present); !status.ok()) return status;
  const auto watch = [&] {
    // The total is reported only when all files have their names.
    if (events.on_progress)
      events.on_progress(std::min(bytes_below(part), std::max<uint64_t>(total, 1) - 1), total);
    return !(events.is_stopped && events.is_stopped());
  };
  if (auto status = store.download(url, names, part.string(), watch); !status.ok()) return status;
  for (const StoredObject& object : sorted) {
    if (!std::ranges::binary_search(names, object.name)) continue;
    const fs::path from = part / object.name, to = fs::path(folder) / object.name;
    if (!has_size(from, object.bytes))
      return absl::UnknownError(absl::StrCat(
          url, "/", object.name, " was changed or removed while it was copied; start again"));
    if (auto status = make_folder(to.parent_path()); !status.ok()) return status;
    std::error_code error;
    fs::rename(from, to, error);
    if (error) return file_status(error.value(), absl::StrCat("cannot rename ", from.string()));
  }
  if (events.on_progress) events.on_progress(total, total);
  return absl::OkStatus();
}

absl::StatusOr<std::string> fetch_to_cache(const ObjectStore& store, const std::string& url,
                                           const FetchEvents& events, const std::string& root) {
  const fs::path folder = folder_of_url(root, url);
  // Listed before the wait for another process: an error of the store needs no wait.
  auto listing = list_url(store, url);
  if (!listing.ok()) return listing.status();
  if (auto status = make_folder(folder); !status.ok()) return status;
  const auto lock = lock_file(folder / "lock", LOCK_EX, announce_wait(events, folder.string()));
  if (!lock.ok()) return lock.status();
  const absl::Cleanup unlock = [&] { close(*lock); };
  const fs::path generation = folder / listing->hash;
  if (auto status = make_folder(generation); !status.ok()) return status;
  if (auto status = use_generation(generation); !status.ok()) return status;
  if (!is_complete(generation, listing->objects)) {
    remove_other_generations(folder, listing->hash);
    const std::string from = listing->is_object ? parent_of(url) : url;
    if (auto status = fetch_objects(store, from, listing->objects, generation.string(), events);
        !status.ok())
      return status;
    std::error_code ignored;
    fs::remove_all(generation / kPart, ignored);
  }
  return path_of(*listing, generation);
}

absl::StatusOr<std::optional<std::string>> find_in_cache(const ObjectStore& store,
                                                         const std::string& url,
                                                         const std::string& root) {
  const auto listing = list_url(store, url);
  if (!listing.ok()) return listing.status();
  const fs::path generation = fs::path(folder_of_url(root, url)) / listing->hash;
  if (!is_complete(generation, listing->objects)) return std::nullopt;
  if (auto status = use_generation(generation); !status.ok()) return status;
  return path_of(*listing, generation);
}

}  // namespace muster
