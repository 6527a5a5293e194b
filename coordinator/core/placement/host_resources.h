// Workers as hosts for ranks: values without behaviour.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/job/ids.h"
#include "common/job/node_labels.h"

namespace muster::coordinator {

// A worker as a host for ranks: its resources, and the part that is free.
struct Host {
  WorkerName name;
  Incarnation incarnation;
  int32_t slots = 0;
  int32_t slots_free = 0;
  bool held = false;     // reserved for some job
  std::string switches;  // as in WorkerRegistered
  int32_t gpus = 0;
  int32_t gpus_free = 0;
  std::string domain{};  // as in WorkerRegistered
  // The labels of the worker, which must outlive the host; null: none.
  const NodeLabels* labels = nullptr;
  // The first waiting job that needs this host or others like it, as its index in a placement pass;
  // -1: none.
  int32_t claim = -1;
};

// The slots and GPUs of a worker that are not free.
struct NodeUse {
  int32_t slots = 0;
  int32_t gpus = 0;

  NodeUse& operator+=(const NodeUse& other) {
    slots += other.slots;
    gpus += other.gpus;
    return *this;
  }
  NodeUse& operator-=(const NodeUse& other) {
    slots -= other.slots;
    gpus -= other.gpus;
    return *this;
  }
};
using NodeUses = std::map<WorkerName, NodeUse>;

}  // namespace muster::coordinator
