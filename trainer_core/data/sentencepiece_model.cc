#include "trainer_core/data/sentencepiece_model.h"

#include <exception>
#include <iostream>
#include <streambuf>
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
    try {
      return processor_.LoadFromSerializedProto({bytes.data(), bytes.size()}).ok() &&
             processor_.GetPieceSize() > 0;
      // The library's tries throw on input that it does not validate.
    } catch (const std::exception&) {
      return false;
    }
  }

  int32_t pieces() const override { return processor_.GetPieceSize(); }
  int32_t unk_id() const override { return processor_.unk_id(); }
  int32_t bos_id() const override { return processor_.bos_id(); }
  int32_t eos_id() const override { return processor_.eos_id(); }
  std::string piece(int32_t id) const override { return processor_.IdToPiece(id); }

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

// Replaces std::cerr's buffer: the library logs to std::cerr.
class LogLines : public std::streambuf {
 public:
  explicit LogLines(const std::function<void(std::string_view)>& take)
      : take_(take), before_(std::cerr.rdbuf(this)) {}
  ~LogLines() override { std::cerr.rdbuf(before_); }

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char byte = traits_type::to_char_type(c);
    xsputn(&byte, 1);
    return c;
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    for (const char* end = text + size; text != end; ++text) {
      if (*text != '\n') {
        line_ += *text;
        continue;
      }
      handle();
      line_.clear();
    }
    return size;
  }

 private:
  // Passes complete lines to `log`. The last ones, such as "file.cc(12) [size > 0] …", LOG(ERROR)
  // or LOG(FATAL), can precede the end of the process by the library.
  void handle() {
    take_(line_);
    const bool is_routine = line_.find("LOG(INFO)") != std::string::npos ||
                            line_.find("LOG(WARNING)") != std::string::npos;
    if (is_routine || line_.find(".cc(") == std::string::npos) return;
    line_ += '\n';
    before_->sputn(line_.data(), static_cast<std::streamsize>(line_.size()));
    before_->pubsync();
  }

  const std::function<void(std::string_view)>& take_;
  std::streambuf* const before_;
  std::string line_;
};

}  // namespace

std::unique_ptr<SentencePieceModel> SentencePieceModel::parse(std::string_view bytes) {
  auto model = std::make_unique<ProcessorModel>();
  if (!model->load(bytes)) return nullptr;
  return model;
}

std::string train_sentencepiece(const std::unordered_map<std::string, std::string>& arguments,
                                const std::function<bool(std::string&)>& next,
                                const std::function<void(std::string_view)>& log,
                                std::string& model) {
  const LogLines lines(log);
  try {
    CallbackIterator sentences(next);
    return error_of(sentencepiece::SentencePieceTrainer::Train(arguments, &sentences, &model));
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace muster::trainer
