// The models that tests/golden/make_hugging_face.py has written.
#pragma once

#include <string>

#include "tests/paths.h"

namespace muster::trainer {

inline constexpr const char* kHuggingFaceGoldens[] = {
    "llama_mha", "llama_gqa", "llama_bias_tied", "mistral", "mixtral", "gemma", "gpt2"};

inline std::string hugging_face_golden(const std::string& name) {
  return source_dir() + "/tests/golden/hugging_face/" + name;
}

}  // namespace muster::trainer
