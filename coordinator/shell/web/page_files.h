// The page's files, which the build embeds in the program (coordinator/page, embed_page.cc).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "daemon/http_message.h"

namespace muster::coordinator {

// A file of the page. The generated source defines all of them.
struct PageFile {
  std::string_view path;          // "/vendor/uplot.js"
  std::string_view content_type;  // "text/javascript; charset=utf-8"
  std::string_view etag;          // includes its quotes
  std::string_view gzip;          // the content, compressed
};
std::span<const PageFile> page_files();

// Returns the response to a request for a path outside the API: the file, or index.html for a path
// whose last part has no dot, which is a route of the page. NotFound is a response, too.
daemon::HttpResponse page_response(std::span<const PageFile> files,
                                   const daemon::HttpRequest& request);

}  // namespace muster::coordinator
