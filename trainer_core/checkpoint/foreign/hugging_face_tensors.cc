#include <algorithm>
#include <string_view>

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "trainer_core/base/check.h"
#include "trainer_core/checkpoint/foreign/hugging_face.h"

namespace muster::trainer {
namespace {

// A parameter of ours, identified by the end of its name, and the tensor of GPT-2 that contains it.
// `count` adjacent parameters of ours are stored as one tensor.
struct Gpt2Name {
  const char* ours;
  const char* theirs;
  int count;
  bool transposed;
};
constexpr Gpt2Name kGpt2Layer[] = {{"input_layernorm.weight", "ln_1.weight", 1, false},
                                   {"input_layernorm.bias", "ln_1.bias", 1, false},
                                   {"self_attn.q_proj.weight", "attn.c_attn.weight", 3, true},
                                   {"self_attn.q_proj.bias", "attn.c_attn.bias", 3, false},
                                   {"self_attn.o_proj.weight", "attn.c_proj.weight", 1, true},
                                   {"self_attn.o_proj.bias", "attn.c_proj.bias", 1, false},
                                   {"post_attention_layernorm.weight", "ln_2.weight", 1, false},
                                   {"post_attention_layernorm.bias", "ln_2.bias", 1, false},
                                   {"mlp.up_proj.weight", "mlp.c_fc.weight", 1, true},
                                   {"mlp.up_proj.bias", "mlp.c_fc.bias", 1, false},
                                   {"mlp.down_proj.weight", "mlp.c_proj.weight", 1, true},
                                   {"mlp.down_proj.bias", "mlp.c_proj.bias", 1, false}};
constexpr Gpt2Name kGpt2Rest[] = {
    {"model.embed_tokens.weight", "transformer.wte.weight", 1, false},
    {"model.embed_positions.weight", "transformer.wpe.weight", 1, false},
    {"model.norm.weight", "transformer.ln_f.weight", 1, false},
    {"model.norm.bias", "transformer.ln_f.bias", 1, false},
    {"lm_head.weight", "lm_head.weight", 1, false}};

bool is_gpt2(const ModelConfig& model) {
  return model.norm_type == NormType::kLayer && model.norm_gain_offset == 0 &&
         model.learns_positions() && !model.gated_mlp && model.qkv_bias && model.out_bias &&
         model.mlp_bias && model.num_kv_heads == model.num_query_heads;
}

// Finds the entry of a name: "model.layers.7.mlp.up_proj.bias" is "mlp.up_proj.bias" of layer 7.
const Gpt2Name* find_gpt2(const std::string& name, std::string& theirs) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, "model.layers.")) {
    for (const Gpt2Name& row : kGpt2Rest) {
      if (name != row.ours) continue;
      theirs = row.theirs;
      return &row;
    }
    return nullptr;
  }
  const size_t dot = rest.find('.');
  for (const Gpt2Name& row : kGpt2Layer) {
    if (rest.substr(dot + 1) != row.ours) continue;
    theirs = absl::StrCat("transformer.h.", rest.substr(0, dot), ".", row.theirs);
    return &row;
  }
  return nullptr;  // a part of the tensor of an earlier parameter
}

std::vector<HuggingFaceTensor> gpt2_tensors(const std::vector<ParamSpec>& table) {
  std::vector<HuggingFaceTensor> tensors;
  for (size_t i = 0; i < table.size(); ++i) {
    HuggingFaceTensor tensor;
    const Gpt2Name* row = find_gpt2(table[i].name, tensor.name);
    if (row == nullptr) continue;
    tensor.shape = table[i].shape;
    tensor.shape[0] *= row->count;
    if (row->transposed) std::reverse(tensor.shape.begin(), tensor.shape.end());
    tensor.offset = table[i].offset;
    tensor.transposed = row->transposed;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Transposes from (rows, columns) to (columns, rows).
void transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
  }
}

}  // namespace

int64_t HuggingFaceTensor::elements() const {
  int64_t n = 1;
  for (const int64_t dim : shape) n *= dim;
  return n;
}

std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& model,
                                                    const std::vector<ParamSpec>& table) {
  if (is_gpt2(model)) return gpt2_tensors(table);
  std::vector<HuggingFaceTensor> tensors;
  for (const ParamSpec& spec : table)
    tensors.push_back({spec.name, spec.shape, spec.offset, false});
  return tensors;
}

void to_our_layout(const HuggingFaceTensor& tensor, std::span<const float> theirs,
                   std::span<float> ours) {
  if (!tensor.transposed) {
    std::copy(theirs.begin(), theirs.end(), ours.begin());
  } else {
    transpose(theirs.data(), tensor.shape[0], tensor.shape[1], ours.data());
  }
}

std::vector<float> in_their_layout(const HuggingFaceTensor& tensor, std::span<const float> ours) {
  MUSTER_CHECK(static_cast<int64_t>(ours.size()) == tensor.elements()) << tensor.name;
  std::vector<float> theirs(ours.begin(), ours.end());
  if (tensor.transposed) transpose(ours.data(), tensor.shape[1], tensor.shape[0], theirs.data());
  return theirs;
}

}  // namespace muster::trainer
