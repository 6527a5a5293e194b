// The reason for the end of a rank in one line, from what it and the kernel wrote. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace muster {

// Returns whether output can explain an end by `signal`. A killed rank cannot report its end.
bool has_reason_in_output(int signal);

// Returns the reason that the last lines of output, oldest first, have for the end of a program by
// `signal`, or by an exit code if it is 0; "" if there is none. A signal is explained only by an
// error: the newest line of a rank that was killed, such as "step 49 loss 5.5", is unrelated.
std::string reason_in_lines(std::span<const std::string> lines, int signal);

// Returns the newest of the node's kernel messages that explains `reason`, or "". An error of a GPU
// explains a failed GPU call and an end without a reason, and an error of a disk a failed read or
// write. Neither explains the error of a program or a lost peer. `pid`: the rank's process; 0: not
// known. `gpus`: the PCI addresses of the rank's GPUs, "0000:3b:00"; empty: not known. An error of
// another GPU does not count, nor does one in another process if the GPUs are not known.
std::string kernel_reason(std::string_view reason, std::span<const std::string> messages, int pid,
                          std::span<const std::string> gpus = {});

}  // namespace muster
