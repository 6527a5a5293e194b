// From a suspicion to a verdict: dumps of stacks and what they decide.
#include "coordinator/core/core.h"

namespace muster::coordinator {

void Core::on(const StacksRequested& event) {
  actions_.push_back(ReplyStacks{event.token, absl::UnimplementedError("not yet"), {}});
}

void Core::on(const StackReportReceived&) {}

void Core::on(const SymbolsReceived&) {}

}  // namespace muster::coordinator
