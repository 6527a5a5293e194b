#include "trainer_core/parallel/stage_messages.h"

#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/parallel/behind_ops.h"

namespace muster::trainer {
namespace {

Tensor stream_in(const TransformerPlan& plan, const Arena& arena, BufferId id) {
  return Tensor::of(plan.dtype, arena.buffer(id), {plan.own_rows(), plan.model.emb_dim});
}

}  // namespace

StageMessages::StageMessages(const TransformerPlan& plan, const Arena& arena, Ops& ops,
                             ProcessGroups& groups)
    : part_(plan.pipeline()),
      ops_(ops),
      groups_(groups),
      sender_(CommStream::start([&groups] { groups.abort(); })),
      receiver_(CommStream::start([&groups] { groups.abort(); })) {
  const auto stream = [&](BufferId id) { return stream_in(plan, arena, id); };
  if (part_.receives_stream()) {
    forward_.incoming = stream(plan.stage.received);
    if (plan.training) backward_.outgoing = stream(plan.stage.sent_gradient);
  }
  if (part_.sends_stream()) {
    forward_.outgoing = stream(plan.stage.sent);
    if (plan.training) backward_.incoming = stream(plan.stage.received_gradient);
  }
}

bool StageMessages::is_first(const PipelinePass& pass) const {
  return part_.begins_model() && pass.chunk == 0;
}

bool StageMessages::is_last(const PipelinePass& pass) const {
  return part_.ends_model() && pass.chunk + 1 == part_.chunks;
}

bool StageMessages::needs(const PipelinePass& pass) const {
  return pass.kind == PassKind::kForward ? !is_first(pass) : !is_last(pass);
}

bool StageMessages::feeds(const PipelinePass& pass) const {
  return pass.kind == PassKind::kForward ? !is_last(pass) : !is_first(pass);
}

int StageMessages::stage_at(int steps) const {
  return (part_.stage.index + steps + part_.stage.ranks) % part_.stage.ranks;
}

ProcessGroup& StageMessages::channel_of(int stage) const {
  const bool is_odd_one = part_.stage.ranks % 2 == 1 && stage + 1 == part_.stage.ranks;
  return groups_.of({.axes = {MeshAxis::kPipeline}}, kStageChannel + (is_odd_one ? 2 : stage % 2));
}

std::string StageMessages::name_of(const PipelinePass& pass, const char* what) const {
  const std::string chunk = part_.chunks == 1 ? "" : absl::StrCat(" chunk ", pass.chunk);
  return absl::StrCat("micro-batch ", pass.micro_batch, chunk,
                      pass.kind == PassKind::kForward ? " activations " : " gradients ", what);
}

void StageMessages::begin(std::span<const PipelinePass> passes) {
  MUSTER_CHECK(broken() || ahead_.empty()) << "passes that have not come";
  for (const PipelinePass& pass : passes)
    if (needs(pass)) ahead_.push_back(pass);
  receive_ahead();
}

void StageMessages::receive_ahead() {
  for (; !ahead_.empty() && !broken(); ahead_.pop_front()) {
    const PipelinePass pass = ahead_.front();
    Buffers& buffers = this->buffers(pass.kind);
    if (std::exchange(buffers.is_taken, true)) return;
    const int from = stage_at(pass.kind == PassKind::kForward ? -1 : 1);
    // This work begins after the previous message was copied.
    buffers.received = enqueue_after(ops_, *receiver_, [this, &buffers, from, pass] {
      return channel_of(from).recv(buffers.incoming, from, name_of(pass, "recv"));
    });
  }
}

void StageMessages::receive(const PipelinePass& pass, const Tensor& to) {
  if (broken()) return;
  Buffers& buffers = this->buffers(pass.kind);
  status_.Update(receiver_->wait(buffers.received));
  if (broken()) return;
  ops_.copy(buffers.incoming, to);
  buffers.is_taken = false;
  receive_ahead();
}

Tensor StageMessages::outgoing(const PipelinePass& pass) {
  Buffers& buffers = this->buffers(pass.kind);
  if (!broken()) status_.Update(sender_->wait(buffers.sent));
  return buffers.outgoing;
}

void StageMessages::send(const PipelinePass& pass) {
  if (broken()) return;
  Buffers& buffers = this->buffers(pass.kind);
  const int to = stage_at(pass.kind == PassKind::kForward ? 1 : -1);
  buffers.sent = enqueue_after(ops_, *sender_, [this, &buffers, to, pass] {
    return channel_of(part_.stage.index).send(buffers.outgoing, to, name_of(pass, "send"));
  });
}

absl::Status StageMessages::finish() {
  // After a failure, peers may never receive what was sent.
  if (!broken()) status_.Update(sender_->wait_all());
  return status_;
}

}  // namespace muster::trainer
