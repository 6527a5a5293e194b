#include "trainer_core/data/sentencepiece_model.h"

#include <exception>
#include <utility>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

namespace muster::trainer {
namespace {

std::string error_of(const sentencepiece::util::Status& status) {
  return status.ok() ? std::string() : status.ToString();
}

class ProcessorModel : public SentencePieceModel {
 public:
  bool load(std::string_view bytes) {
    return processor_.LoadFromSerializedProto({bytes.data(), bytes.size()}).ok() &&
           processor_.GetPieceSize() > 0;
  }

  int32_t pieces() const override { return processor_.GetPieceSize(); }
  int32_t bos_id() const override { return processor_.bos_id(); }
  int32_t eos_id() const override { return processor_.eos_id(); }

  std::string encode(std::string_view text, std::vector<int32_t>& ids) const override {
    return error_of(processor_.Encode({text.data(), text.size()}, &ids));
  }
  std::string decode(const std::vector<int32_t>& ids, std::string& text) const override {
    return error_of(processor_.Decode(ids, &text));
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

class CallbackIterator : public sentencepiece::SentenceIterator {
 public:
  explicit CallbackIterator(const std::function<bool(std::string&)>& next) : next_(next) { Next(); }

  bool done() const override { return done_; }
  void Next() override { done_ = !next_(value_); }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::function<bool(std::string&)>& next_;
  std::string value_;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<SentencePieceModel> SentencePieceModel::parse(std::string_view bytes) {
  auto model = std::make_unique<ProcessorModel>();
  if (!model->load(bytes)) return nullptr;
  return model;
}

std::string train_sentencepiece(const std::unordered_map<std::string, std::string>& arguments,
                                const std::function<bool(std::string&)>& next, std::string& model) {
  try {
    CallbackIterator sentences(next);
    return error_of(sentencepiece::SentencePieceTrainer::Train(arguments, &sentences, &model));
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace muster::trainer
