// Texts of Python frames: "/home/u/train.py:31 step". Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

// The parts of the text of a Python frame.
struct PythonFrame {
  std::string_view file;  // "/home/u/train.py", "<string>"
  int32_t line = 0;       // 0: not known
  std::string_view function;
};

// Returns the parts of a frame's text; an empty file if the text is not that of a Python frame.
PythonFrame python_frame_of(std::string_view text);

// Returns whether the file belongs to Python or to an installed package, and not to the program.
bool is_python_library(std::string_view file);

// Returns the installed package of the file: "torch" for "…/site-packages/torch/_ops.py". Empty for
// files of Python itself and of the program.
std::string_view python_package_of(std::string_view file);

// Returns the path below the folder of packages or of Python's own modules:
// "torch/distributed/distributed_c10d.py". For files of the program, returns the name with the last
// folder: "job/train.py".
std::string_view short_python_path(std::string_view file);

}  // namespace muster
