// Arguments that all of gRPC's channels to a coordinator share.
#pragma once

#include <grpc/grpc.h>
#include <grpcpp/support/channel_arguments.h>

namespace muster::daemon {

// A coordinator is reached directly, not through a web proxy. Its messages are not expanded: none
// is compressed, and gRPC limits a message's size only after it has expanded the message, so 63 KB
// from a hostile server could occupy 62 MiB.
inline grpc::ChannelArguments channel_arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  return arguments;
}

}  // namespace muster::daemon
