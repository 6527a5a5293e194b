// Determines the operations of a pass that are the same each time, so that they can be replayed.
#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {

void Transformer::replay() {
  MUSTER_CHECK(!plan_.decodes()) << "a plan for decoding";
  replayer_ = ops_.make_replayer();
  if (replayer_ == nullptr) return;
  exchange_.set_replayer(replayer_.get());
  for (size_t layer = 0; layer < static_cast<size_t>(plan_.model.num_layers); ++layer) {
    const std::string name = has_experts(layer) ? "layers with experts" : "layers";
    if (const char* const why = why_not_replayed(Piece::kLayer, layer, plan_.training)) {
      replayer_->leave_out(name, why);
    } else if (const char* const backward =
                   why_not_replayed(Piece::kLayerBackward, layer, plan_.training)) {
      replayer_->leave_out(name + " in the backward pass", backward);
    }
  }
}

const char* Transformer::why_not_replayed(Piece piece, size_t layer, bool with_gradients) const {
  if (piece == Piece::kHead || piece == Piece::kHeadBackward) return nullptr;
  if (has_experts(layer) && plan_.part().splits_experts())
    return "how many rows come to a rank's experts is another number each time";
  if (!with_gradients) return nullptr;
  if (plan_.model.dropout_rate > 0 || plan_.model.lora.dropout > 0)
    return "dropout draws for other samples each time";
  const QuantizationConfig& quantization = plan_.model.quantization;
  const bool rounds_by_chance =
      quantization.type == QuantizationType::kInt8 && quantization.stochastic_rounding;
  if (rounds_by_chance && piece == Piece::kLayerBackward)
    return "stochastic rounding draws for other samples each time";
  return nullptr;
}

// The plan determines the addresses of a layer's weights, gradients and activations, so they are
// the same in each pass of a slot over the same model.
void Transformer::replayed(Piece piece, size_t layer, Accumulate accumulate,
                           absl::FunctionRef<void()> calls) {
  const bool is_scored = scores_ != nullptr && piece == Piece::kHead;
  if (replayer_ == nullptr || observer_ != nullptr || is_scored || broken()) return calls();
  const bool with_gradients = dropout_.has_value();
  if (why_not_replayed(piece, layer, with_gradients) != nullptr) return calls();
  const auto flag = [](bool is_set, uint32_t bit) { return is_set ? bit : 0; };
  replayer_->replay(
      {static_cast<uint32_t>(piece), static_cast<uint32_t>(layer), static_cast<uint32_t>(run_.slot),
       flag(accumulate == Accumulate::kYes, 1) + flag(with_gradients, 2) +
           flag(weights_ == reference_.get(), 4)},
      calls);
}

}  // namespace muster::trainer
