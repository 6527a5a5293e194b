#include "daemon/job_spec_messages.h"

#include <algorithm>
#include <set>
#include <string>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "tests/unit/every_job_field.h"

namespace muster::daemon {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::util::MessageDifferencer;

// The type of a proto field that a member has.
FieldDescriptor::CppType type_of(int32_t) { return FieldDescriptor::CPPTYPE_INT32; }
FieldDescriptor::CppType type_of(int64_t) { return FieldDescriptor::CPPTYPE_INT64; }
FieldDescriptor::CppType type_of(bool) { return FieldDescriptor::CPPTYPE_BOOL; }
FieldDescriptor::CppType type_of(const std::string&) { return FieldDescriptor::CPPTYPE_STRING; }
FieldDescriptor::CppType type_of(const std::vector<std::string>&) {
  return FieldDescriptor::CPPTYPE_STRING;
}
template <class T>
bool is_list(const T&) {
  return std::is_same_v<T, std::vector<std::string>>;
}

TEST(JobFields, NameFieldsOfTheMessageWithTheirTypes) {
  const JobSpec spec;
  for_each_job_field([&](const JobField& row, auto member) {
    const FieldDescriptor* field =
        v1::JobSpec::descriptor()->FindFieldByName(std::string(row.name));
    ASSERT_NE(field, nullptr) << row.name;
    EXPECT_EQ(field->cpp_type(), type_of(spec.*member)) << row.name;
    EXPECT_EQ(field->is_repeated(), is_list(spec.*member)) << row.name;
  });
}

TEST(JobFields, CoverTheMessage) {
  std::set<std::string> known(kStructuredJobFields.begin(), kStructuredJobFields.end());
  for (const JobField& row : kJobFields) {
    EXPECT_TRUE(known.insert(std::string(row.name)).second) << row.name << " is in the list twice";
  }
  const auto& descriptor = *v1::JobSpec::descriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    EXPECT_TRUE(known.contains(descriptor.field(i)->name()))
        << descriptor.field(i)->name() << ": add a row to kJobFields in common/job/job_spec.h";
  }
}

TEST(JobSpecMessages, KeepEveryFieldInBothDirections) {
  const JobSpec spec = job_with_every_field();
  v1::JobSpec proto;
  job_spec_to_proto(spec, proto);
  const auto& reflection = *proto.GetReflection();
  const auto& descriptor = *v1::JobSpec::descriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor* field = descriptor.field(i);
    EXPECT_TRUE(field->is_repeated() ? reflection.FieldSize(proto, field) > 0
                                     : reflection.HasField(proto, field))
        << field->name() << " has its default: set it in job_with_every_field()";
  }
  EXPECT_EQ(job_spec_from_proto(proto), spec);
  v1::JobSpec again;
  job_spec_to_proto(job_spec_from_proto(proto), again);
  EXPECT_TRUE(MessageDifferencer::Equals(again, proto)) << again.DebugString();
}

// Two rows with each other's member would pass the round trip.
TEST(JobSpecMessages, PairEachNameWithItsMember) {
  const JobSpec spec = job_with_every_field();
  v1::JobSpec proto;
  job_spec_to_proto(spec, proto);
  EXPECT_EQ(proto.name(), spec.name);
  EXPECT_EQ(proto.user(), spec.user);
  EXPECT_EQ(proto.priority(), spec.priority);
  EXPECT_EQ(proto.nodes(), spec.nodes);
  EXPECT_EQ(proto.ranks_per_node(), spec.ranks_per_node);
  EXPECT_EQ(proto.gpus_per_rank(), spec.gpus_per_rank);
  EXPECT_EQ(proto.restarts_max(), spec.restarts_max);
  EXPECT_EQ(proto.steps(), spec.steps);
  EXPECT_EQ(proto.hang_after_seconds(), spec.hang_after_seconds);
  EXPECT_EQ(proto.output_directory(), spec.output_directory);
  EXPECT_EQ(proto.train_config_json(), spec.train_config_json);
  EXPECT_EQ(proto.spares(), spec.spares);
  EXPECT_EQ(proto.min_nodes(), spec.min_nodes);
  EXPECT_EQ(proto.working_directory(), spec.working_directory);
  EXPECT_EQ(proto.command(0), spec.command[0]);
}

TEST(JobSpecMessages, AnEmptyMessageHasZeros) {
  const JobSpec spec = job_spec_from_proto({});
  EXPECT_EQ(spec.nodes, 0) << "the coordinator refuses it";
  EXPECT_EQ(spec.ranks_per_node, 0);
  EXPECT_FALSE(spec.is_program());
}

}  // namespace
}  // namespace muster::daemon
