#include "coordinator/shell/start_exit.h"

#include <string>

#include <absl/strings/cord.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

namespace muster::coordinator {
namespace {

constexpr char kMark[] = "muster.start_exit";

}  // namespace

StartExit exit_of_state(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kOutOfRange:  // a limit of file sizes
      return StartExit::kNoSpace;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kUnavailable:  // a program holds the state file
      return StartExit::kLock;
    case absl::StatusCode::kAborted:
      return StartExit::kDeposed;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:  // a newer version
    case absl::StatusCode::kInternal:
      return StartExit::kState;
    default:
      return StartExit::kFlag;
  }
}

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
