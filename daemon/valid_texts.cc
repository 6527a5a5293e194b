#include "daemon/valid_texts.h"

#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>

#include "common/text/escape.h"

namespace muster::daemon {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void make_valid(Message& message, const Reflection& reflection, const FieldDescriptor* field) {
  if (field->is_repeated()) {
    const int size = reflection.FieldSize(message, field);
    for (int i = 0; i < size; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        make_texts_valid(*reflection.MutableRepeatedMessage(&message, field, i));
        continue;
      }
      std::string scratch;
      const std::string& text = reflection.GetRepeatedStringReference(message, field, i, &scratch);
      if (!is_valid_utf8(text)) reflection.SetRepeatedString(&message, field, i, valid_utf8(text));
    }
    return;
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    make_texts_valid(*reflection.MutableMessage(&message, field));
    return;
  }
  std::string scratch;
  const std::string& text = reflection.GetStringReference(message, field, &scratch);
  if (!is_valid_utf8(text)) reflection.SetString(&message, field, valid_utf8(text));
}

}  // namespace

void make_texts_valid(Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    // Maps are repeated messages of a key and a value.
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE ||
        field->type() == FieldDescriptor::TYPE_STRING)
      make_valid(message, reflection, field);
  }
}

}  // namespace muster::daemon
