#include "coordinator/shell/start_exit.h"

#include <string>

#include <absl/strings/cord.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

namespace muster::coordinator {
namespace {

constexpr char kMark[] = "muster.start_exit";

}  // namespace

absl::Status exits_as(StartExit exit, absl::Status status) {
  status.SetPayload(kMark, absl::Cord(absl::StrCat(static_cast<int>(exit))));
  return status;
}

int exit_code_of_start(const absl::Status& status) {
  const auto mark = status.GetPayload(kMark);
  int code = static_cast<int>(StartExit::kFlag);
  if (mark.has_value() && absl::SimpleAtoi(std::string(*mark), &code)) return code;
  return static_cast<int>(StartExit::kFlag);
}

}  // namespace muster::coordinator
