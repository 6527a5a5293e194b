#include "tests/unit/progress/writer.c"  // NOLINT: muster_progress.h is C++, too
