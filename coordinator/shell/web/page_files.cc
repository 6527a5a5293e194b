#include "coordinator/shell/web/page_files.h"

#include <algorithm>
#include <string>

#include <absl/strings/match.h>

#include "common/text/absl_view.h"
#include "coordinator/shell/web/gzip.h"
#include "coordinator/shell/web/web_reply.h"

namespace muster::coordinator {
namespace {

constexpr const char* kText = "text/plain; charset=utf-8";
// A name below vendor/ contains the version of its library, so its content never changes.
constexpr std::string_view kVendor = "/vendor/";

const PageFile* find(std::span<const PageFile> files, std::string_view path) {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const PageFile& file) { return file.path == path; });
  return found == files.end() ? nullptr : &*found;
}

}  // namespace

daemon::HttpResponse page_response(std::span<const PageFile> files,
                                   const daemon::HttpRequest& request) {
  if (request.method != "GET" && request.method != "HEAD")
    return {405, kText, "only GET is served here\n", {{"Allow", "GET, HEAD"}}};
  const PageFile* file = find(files, request.path == "/" ? "/index.html" : request.path);
  if (file == nullptr) return {404, kText, "not found\n"};
  daemon::HttpResponse response{200, std::string(file->content_type), ""};
  response.headers = {
      {"ETag", std::string(file->etag)},
      {"Vary", "Accept-Encoding"},
      {"Cache-Control",
       file->path.starts_with(kVendor) ? "public, max-age=31536000, immutable" : "no-cache"}};
  if (absl::StrContains(av(request.header("if-none-match")), av(file->etag))) {
    response.status = 304;
    return response;
  }
  if (takes_gzip(request)) {
    response.headers.emplace_back("Content-Encoding", "gzip");
    response.body = std::string(file->gzip);
  } else {
    response.body = unzipped(file->gzip);
  }
  return response;
}

}  // namespace muster::coordinator
