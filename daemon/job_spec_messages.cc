#include "daemon/job_spec_messages.h"

#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "daemon/evidence_messages.h"

namespace muster::daemon {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Returns the descriptor of a row, which exists (tests/unit/daemon/job_spec_messages_test.cc).
const FieldDescriptor* descriptor_of(const JobField& field) {
  return v1::JobSpec::descriptor()->FindFieldByName(std::string(field.name));
}

// Reads a field of a message into a member, by the type of the member.
struct FieldReader {
  const Message& message;
  const Reflection& reflection;
  const FieldDescriptor* field;

  void operator()(int32_t& value) const { value = reflection.GetInt32(message, field); }
  void operator()(int64_t& value) const { value = reflection.GetInt64(message, field); }
  void operator()(bool& value) const { value = reflection.GetBool(message, field); }
  void operator()(std::string& value) const { value = reflection.GetString(message, field); }
  void operator()(std::vector<std::string>& list) const {
    for (int i = 0; i < reflection.FieldSize(message, field); ++i)
      list.push_back(reflection.GetRepeatedString(message, field, i));
  }
};

// Writes a member into a field of a message.
struct FieldWriter {
  Message& message;
  const Reflection& reflection;
  const FieldDescriptor* field;

  void operator()(int32_t value) const { reflection.SetInt32(&message, field, value); }
  void operator()(int64_t value) const { reflection.SetInt64(&message, field, value); }
  void operator()(bool value) const { reflection.SetBool(&message, field, value); }
  void operator()(const std::string& value) const { reflection.SetString(&message, field, value); }
  void operator()(const std::vector<std::string>& list) const {
    for (const std::string& word : list) reflection.AddString(&message, field, word);
  }
};

// A kind of a later version counts as the strictest one.
JobDependency dependency_from_proto(const v1::Dependency& proto) {
  JobDependency dependency{JobId(proto.job_id())};
  if (proto.kind() == v1::Dependency::AFTER_ANY) dependency.kind = DependencyKind::kAfterAny;
  if (proto.kind() == v1::Dependency::AFTER_NOT_OK) dependency.kind = DependencyKind::kAfterNotOk;
  return dependency;
}

}  // namespace

void dependency_to_proto(const JobDependency& dependency, v1::Dependency& proto) {
  proto.set_job_id(dependency.job.value());
  switch (dependency.kind) {
    case DependencyKind::kAfterOk:
      return proto.set_kind(v1::Dependency::AFTER_OK);
    case DependencyKind::kAfterAny:
      return proto.set_kind(v1::Dependency::AFTER_ANY);
    case DependencyKind::kAfterNotOk:
      return proto.set_kind(v1::Dependency::AFTER_NOT_OK);
  }
}

JobSpec job_spec_from_proto(const v1::JobSpec& proto) {
  JobSpec spec;
  for_each_job_field([&](const JobField& field, auto member) {
    FieldReader{proto, *proto.GetReflection(), descriptor_of(field)}(spec.*member);
  });
  spec.environment = {proto.environment().begin(), proto.environment().end()};
  spec.stack_traces = stack_traces_from_proto(proto.stack_traces());
  for (const v1::Smaller& size : proto.smaller())
    spec.smaller.push_back({size.nodes(), size.train_config_json()});
  for (const v1::Dependency& dependency : proto.dependencies())
    spec.dependencies.push_back(dependency_from_proto(dependency));
  return spec;
}

void job_spec_to_proto(const JobSpec& spec, v1::JobSpec& proto) {
  for_each_job_field([&](const JobField& field, auto member) {
    FieldWriter{proto, *proto.GetReflection(), descriptor_of(field)}(spec.*member);
  });
  for (const auto& [key, value] : spec.environment) (*proto.mutable_environment())[key] = value;
  v1::StackTraces& traces = *proto.mutable_stack_traces();
  traces.set_collect(spec.stack_traces.collect);
  traces.set_to_cloud(spec.stack_traces.to_cloud);
  traces.set_interval_seconds(spec.stack_traces.interval_seconds);
  for (const SmallerJob& size : spec.smaller) {
    v1::Smaller& smaller = *proto.add_smaller();
    smaller.set_nodes(size.nodes);
    smaller.set_train_config_json(size.train_config_json);
  }
  for (const JobDependency& dependency : spec.dependencies)
    dependency_to_proto(dependency, *proto.add_dependencies());
}

}  // namespace muster::daemon
