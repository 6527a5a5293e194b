#include "coordinator/shell/web/page_files.h"

#include <gmock/gmock.h>

#include <array>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "coordinator/shell/web/gzip.h"

namespace muster::coordinator {
namespace {

std::string header_of(const daemon::HttpResponse& response, const std::string& name) {
  for (const auto& [key, value] : response.headers)
    if (key == name) return value;
  return "";
}

class PageFilesTest : public testing::Test {
 protected:
  daemon::HttpResponse get(const std::string& path, const std::string& encoding = "",
                           const std::string& etag = "") {
    daemon::HttpRequest request;
    request.method = "GET";
    request.path = path;
    if (!encoding.empty()) request.headers["accept-encoding"] = encoding;
    if (!etag.empty()) request.headers["if-none-match"] = etag;
    return page_response(files_, request);
  }

  const std::string html_ = gzipped("<!doctype html>", GzipLevel::kSmallest),
                    module_ = gzipped("export {}", GzipLevel::kSmallest);
  const std::array<PageFile, 2> files_ = {
      PageFile{"/index.html", "text/html; charset=utf-8", "\"1\"", html_},
      PageFile{"/vendor/x-1.js", "text/javascript; charset=utf-8", "\"2\"", module_}};
};

TEST_F(PageFilesTest, AFileIsSentCompressedOrPlain) {
  const auto plain = get("/index.html");
  EXPECT_EQ(plain.body, "<!doctype html>");
  EXPECT_EQ(header_of(plain, "Content-Encoding"), "");
  EXPECT_EQ(header_of(plain, "Cache-Control"), "no-cache");
  const auto compressed = get("/vendor/x-1.js", "br, gzip");
  EXPECT_EQ(compressed.body, module_);
  EXPECT_EQ(header_of(compressed, "Content-Encoding"), "gzip");
  EXPECT_THAT(header_of(compressed, "Cache-Control"), ::testing::HasSubstr("immutable"));
}

TEST_F(PageFilesTest, AKnownContentIsNotSentAgain) {
  const auto same = get("/index.html", "gzip", "W/\"9\", \"1\"");
  EXPECT_EQ(same.status, 304);
  EXPECT_EQ(same.body, "");
  EXPECT_EQ(header_of(same, "ETag"), "\"1\"");
  EXPECT_EQ(get("/index.html", "", "\"2\"").status, 200);
}

TEST_F(PageFilesTest, RoutesAreThePageAndOtherFilesAreMissing) {
  EXPECT_EQ(get("/").body, "<!doctype html>");
  EXPECT_EQ(get("/").body, "<!doctype html>");
  for (const char* path : {"/jobs/7", "/health", "/metrics/"}) EXPECT_EQ(get(path).status, 404);
  for (const char* path : {"/app.js", "/vendor/../index.html", "/../etc/passwd.txt", "/%2e.html"})
    EXPECT_EQ(get(path).status, 404) << path;
}

TEST_F(PageFilesTest, TheProgramHasTheDescriptionOfItsApi) {
  daemon::HttpRequest request;
  request.method = "GET";
  request.path = "/api/v1/openapi.json";
  const auto document = nlohmann::json::parse(page_response(page_files(), request).body);
  EXPECT_EQ(document.at("openapi"), "3.1.0");
  request.method = "POST";
  EXPECT_EQ(page_response(page_files(), request).status, 405);
}

}  // namespace
}  // namespace muster::coordinator
