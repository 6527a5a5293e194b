#include "trainer_core/comm/transport.h"

#include <absl/strings/str_cat.h>

namespace muster::trainer {

void Transport::abort() { fail(absl::StrCat("rank ", rank(), " aborted")); }

}  // namespace muster::trainer
