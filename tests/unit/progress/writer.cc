#include "tests/unit/progress/writer.c"  // NOLINT: muster_progress.h must compile as C++, too
