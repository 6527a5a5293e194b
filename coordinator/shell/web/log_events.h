// Output of ranks as server-sent events.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "coordinator/shell/logs/log_store.h"
#include "daemon/http_message.h"
#include "daemon/work_pool.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

// The maximum number of ranks whose output one request merges: each requires reads of its files.
constexpr int32_t kMergedRanksMax = 1'024;

// Returns the object LogChunk of the API. Bytes that are no UTF-8 become U+FFFD.
nlohmann::json log_chunk_to_json(const v1::LogChunk& chunk);
// Returns the status of check_log_request(), PermissionDenied if the job does not belong to the
// caller, and InvalidArgument if more than kMergedRanksMax ranks would be merged.
absl::Status check_web_log_request(const Caller& caller, const v1::FollowLogsRequest& request,
                                   const std::optional<LogScope>& scope);

// Sends the selected output, from at most `tail_bytes` per rank before the present end on. An event
// of one rank has an id; a request with the same id as `last_event_id` continues after that event.
// Files are read by `files`. `ticket` is released with the result.
std::shared_ptr<daemon::HttpSource> open_log_events(LogStore& logs, daemon::WorkPool& files,
                                                    v1::FollowLogsRequest request,
                                                    uint64_t tail_bytes,
                                                    std::string_view last_event_id,
                                                    std::shared_ptr<daemon::HttpSink> sink,
                                                    std::shared_ptr<void> ticket);

}  // namespace muster::coordinator
