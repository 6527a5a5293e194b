// Texts of messages between programs. Protobuf refuses a message with a text that is not UTF-8 on
// the receiving side, where the missing text is unknown: a text of the system (a host's name, a
// path, a driver's or kernel's message) is made valid before it is sent.
#pragma once

#include <google/protobuf/message.h>

namespace muster::daemon {

// Writes invalid bytes of every text in `message`, at any depth, as \xff. Fields of bytes stay as
// they are.
void make_texts_valid(google::protobuf::Message& message);

}  // namespace muster::daemon
