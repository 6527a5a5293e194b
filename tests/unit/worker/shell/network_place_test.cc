#include "worker/shell/network_place.h"

#include <fstream>
#include <utility>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

TEST(NetworkPlace, TheLinesOfTheFileReplaceTheOptions) {
  const TempFolder folder;
  WorkerOptions options;
  options.switches = "a.b";
  options.domain = "rack1";
  const auto read = [&] {
    const auto place = read_network_place(options);
    EXPECT_TRUE(place.ok()) << place.status();
    return place.ok() ? std::pair(place->switches, place->domain)
                      : std::pair<std::string, std::string>();
  };
  EXPECT_EQ(read(), std::pair(std::string("a.b"), std::string("rack1")));
  options.switches_file = folder.path() + "/switches";
  EXPECT_FALSE(read_network_place(options).ok());
  const auto with = [&](const char* text) {
    std::ofstream(options.switches_file) << text;
    return read();
  };
  EXPECT_EQ(with("s.l\n"), std::pair(std::string("s.l"), std::string("rack1")));
  EXPECT_EQ(with("s.l\nrack7\n"), std::pair(std::string("s.l"), std::string("rack7")));
  EXPECT_EQ(with("s.l\nrack7"), std::pair(std::string("s.l"), std::string("rack7")));
  EXPECT_EQ(with("\n\n"), std::pair(std::string(), std::string("rack1")));
  EXPECT_EQ(with("."), std::pair(std::string(), std::string("rack1")));
}

}  // namespace
}  // namespace muster::worker
