#include "common/process/host_name.h"

#include <unistd.h>

#include <array>

#include <climits>

#include "common/text/escape.h"

namespace muster {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return escape_controls(valid_utf8(name.data()), Layout::kOneLine);
}

}  // namespace muster
