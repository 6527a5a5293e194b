// A fixture with a temporary folder for config files, and short forms of load_config() and
// resolve_job().
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "jobspec/resolve.h"
#include "tests/paths.h"
#include "tests/unit/temp_folder.h"

namespace muster::jobspec {

class ConfigFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const auto path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    write_file(path, text);
    return path.string();
  }

  static std::string shipped() { return source_dir() + "/configs/base.yml"; }

  static absl::StatusOr<Config> load(
      std::vector<std::string> overrides,
      std::vector<std::pair<std::string, std::string>> environment = {},
      std::string path = shipped()) {
    return load_config({std::move(path), {}, std::move(overrides), std::move(environment)});
  }

  static LaunchOptions options() {
    LaunchOptions options;
    options.working_directory = "/somewhere";
    options.home = "/home/ada";
    options.default_run_name = "unnamed";
    options.user = "ada";
    return options;
  }

  static absl::StatusOr<ResolvedJob> resolve(std::vector<std::string> overrides,
                                             const LaunchOptions& launch = options()) {
    auto config = load(std::move(overrides));
    if (!config.ok()) return config.status();
    return resolve_job(*config, launch);
  }

  template <class T>
  static std::string error_of(const absl::StatusOr<T>& result) {
    return result.ok() ? "" : std::string(result.status().message());
  }

  const TempFolder temp_;
  const std::filesystem::path folder_ = temp_.path();
};

}  // namespace muster::jobspec
