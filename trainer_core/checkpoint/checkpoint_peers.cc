#include "trainer_core/checkpoint/checkpoint_peers.h"

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace muster::trainer {

using nlohmann::json;

std::string PeerMessage::text() const {
  const json message = {{"code", static_cast<int>(status.code())},
                        {"message", std::string(status.message())},
                        {"body", body}};
  // A message may contain a file name that is not UTF-8.
  return message.dump(-1, ' ', false, json::error_handler_t::replace);
}

PeerMessage PeerMessage::parse(std::string_view text) {
  try {
    const json message = json::parse(text);
    return {absl::Status(static_cast<absl::StatusCode>(message.at("code").get<int>()),
                         message.at("message").get_ref<const std::string&>()),
            message.at("body").get<std::string>()};
  } catch (const json::exception& e) {
    return {absl::InternalError(absl::StrCat("a message that is none: ", e.what()))};
  }
}

absl::StatusOr<PeerMessage> share_message(CheckpointPeers& peers, const PeerMessage& from_leader) {
  const auto text = peers.share(peers.rank() == 0 ? from_leader.text() : "");
  if (!text.ok()) return text.status();
  return PeerMessage::parse(*text);
}

absl::StatusOr<std::vector<PeerMessage>> gather_messages(CheckpointPeers& peers,
                                                         const PeerMessage& mine) {
  const auto texts = peers.gather(mine.text());
  if (!texts.ok()) return texts.status();
  std::vector<PeerMessage> messages;
  for (const std::string& text : *texts) messages.push_back(PeerMessage::parse(text));
  return messages;
}

absl::Status first_error(const CheckpointPeers& peers, const std::vector<PeerMessage>& messages) {
  absl::Status first;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    const absl::Status& status = messages[rank].status;
    if (status.ok() || (!first.ok() && (absl::IsDataLoss(status) || !absl::IsDataLoss(first))))
      continue;
    first = rank == 0 ? status
                      : absl::Status(status.code(),
                                     absl::StrCat("rank ", peers.world_rank(static_cast<int>(rank)),
                                                  ": ", status.message()));
  }
  return first;
}

}  // namespace muster::trainer
