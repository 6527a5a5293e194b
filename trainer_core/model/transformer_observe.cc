// Passes values to the observer, if there is one.
#include <string>

#include "trainer_core/model/pass_observer.h"
#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {

void Transformer::show(const char* name, const Tensor& x) const {
  if (observer_ != nullptr) observer_->computed(name, x);
}

void Transformer::show(size_t layer, const char* name, const Tensor& x) const {
  if (observer_ == nullptr) return;
  observer_->computed("layer" + std::to_string(layer) + "." + name, x);
}

void Transformer::show_attention(size_t layer) const {
  const LayerBuffers& buffers = buffers_of(layer);
  show(layer, "normed1", stream(buffers.normed1));
  show(layer, "qkv", activation(buffers.qkv, {rows_, shape_.qkv_width()}));
  show(layer, "context", activation(buffers.context, {rows_, shape_.out_width()}));
  show(layer, "middle", stream(buffers.middle));
  if (!plan_.model.parallel_block) show(layer, "normed2", stream(buffers.normed2));
}

void Transformer::show_mlp(size_t layer) const {
  const LayerBuffers& buffers = buffers_of(layer);
  if (has_experts(layer)) {
    // Activations of experts are not shown, because their rows have gaps.
    show(layer, "router_probs", routing(layer).probs);
  } else {
    show(layer, "gate_up", gate_up(buffers));
    show(layer, "act", activation(buffers.act, {rows_, plan_.mlp_columns().count}));
  }
  show(layer, "mlp_out", stream(plan_.delta));
}

void Transformer::show_gradients(size_t block) const {
  if (observer_ == nullptr) return;
  const std::vector<ParamBucket>& buckets = plan_.sharding.layout.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i].block != block) continue;
    const BufferLocation& location = plan_.blocks.buckets[i].gradients;
    float* const start = reinterpret_cast<float*>(
        static_cast<char*>(arena_.buffer(location.buffer)) + location.offset);
    for (auto row = buckets[i].rows.rbegin(); row != buckets[i].rows.rend(); ++row) {
      observer_->gradient(plan_.sharding.layout.table()[row->param].name,
                          Tensor::f32(start + row->box.offset, {row->box.elements()}));
    }
  }
}

}  // namespace muster::trainer
