// Standard input, output and error that whoever started the program has closed (`muster run … >&- 2>&-`).
#pragma once

namespace muster {

// Takes those of the numbers 0 to 2 that are free, so that no file or socket of the program's gets one of them and with it the messages that are
// meant for people. Reading there finds the end, writing fails with EBADF as before. First of all in main().
void hold_standard_descriptors();

}  // namespace muster
