#include "coordinator/shell/messages/incident_messages.h"

#include <gmock/gmock.h>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/shell/full_incident.h"

namespace muster::coordinator {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST(IncidentMessages, AnIncidentComesBackAsItWas) {
  for (size_t kind = 0; kind < kIncidentKindNames.size(); ++kind) {
    Incident incident = full_incident(7);
    incident.kind = static_cast<IncidentKind>(kind);
    const auto again = incident_from_proto(incident_to_proto(incident));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, incident);
  }
}

TEST(IncidentMessages, ASummaryOmitsLargeFields) {
  const v1::Incident summary = incident_summary_to_proto(full_incident(7));
  EXPECT_EQ(summary.sentence(), full_incident(7).sentence);
  EXPECT_EQ(summary.suspects_size(), 2);
  EXPECT_EQ(summary.ranks_size(), 0);
  EXPECT_EQ(summary.stacks().nodes_size(), 0);
  EXPECT_EQ(summary.kernel_messages_size(), 0);
}

TEST(IncidentMessages, AnInvalidRecordIsRefused) {
  v1::Incident record = incident_to_proto(full_incident(7));
  record.set_kind("earthquake");
  EXPECT_THAT(std::string(incident_from_proto(record).status().message()),
              HasSubstr("kind is \"earthquake\""));
  record = incident_to_proto(full_incident(0));
  EXPECT_THAT(std::string(incident_from_proto(record).status().message()),
              HasSubstr("id is missing"));
  record = incident_to_proto(full_incident(7));
  record.mutable_stacks()->mutable_nodes(0)->set_frame(99);
  EXPECT_FALSE(incident_from_proto(record).ok());
}

// Clients accept the message for any amount of evidence.
TEST(IncidentMessages, AnIncidentFitsIntoAMessage) {
  Incident incident = full_incident(7);
  StackSample sample;
  for (int32_t rank = 0; rank < 300; ++rank) {
    ThreadStack main;
    main.name = "main";
    for (int depth = 0; depth < 100; ++depth)
      main.frames.push_back({kNoModule, 0, absl::StrCat(rank, ".", depth, std::string(400, 'x'))});
    sample.ranks.push_back({rank, 1, "", {main}, ""});
  }
  incident.stacks.add(sample);
  incident.ranks.resize(kIncidentRanksMax, incident.ranks[0]);
  for (RankEvidence& rank : incident.ranks)
    rank.last_lines.assign(kEvidenceLinesMax, std::string(kEvidenceLineBytesMax, 'x'));
  incident.kernel_messages.assign(kKernelMessagesMax, std::string(kEvidenceLineBytesMax, 'k'));
  const v1::Incident record = incident_to_proto(incident);
  EXPECT_LE(record.ByteSizeLong(), kIncidentBytesMax);
  const auto again = incident_from_proto(record);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_GT(again->stacks.dropped(), 0);
  EXPECT_EQ(again->suspects, incident.suspects);
}

TEST(IncidentMessages, AReportOfAWorkerBecomesAnEvent) {
  const Incident incident = full_incident(7);
  v1::StackReport report;
  report.set_job_id(3);
  report.set_attempt(2);
  report.set_dump_id(9);
  report.set_sample(1);
  const v1::Incident parts = incident_to_proto(incident);
  *report.mutable_stacks() = parts.stacks();
  *report.mutable_ranks() = parts.ranks();
  for (int i = 0; i < 1'000; ++i) report.add_kernel_messages(absl::StrCat("line ", i));
  const auto event = stack_report_from_proto(report);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->dump, DumpId(9));
  EXPECT_EQ(event->job, JobId(3));
  EXPECT_EQ(event->attempt, Attempt(2));
  EXPECT_EQ(event->sample, 1);
  EXPECT_EQ(event->stacks, incident.stacks);
  EXPECT_EQ(event->ranks, incident.ranks);
  ASSERT_THAT(event->kernel_messages, SizeIs(kKernelMessagesMax));
  EXPECT_EQ(event->kernel_messages.back(), "line 999");
  report.mutable_stacks()->mutable_nodes(0)->set_frame(99);
  EXPECT_FALSE(stack_report_from_proto(report).ok());
}

TEST(IncidentMessages, SymbolsBecomeAnEvent) {
  v1::Symbols symbols;
  symbols.set_dump_id(9);
  symbols.mutable_module()->set_build_id("ab");
  symbols.mutable_module()->set_path("/bin/x");
  v1::FrameSymbol& symbol = *symbols.add_symbols();
  symbol.set_address(0x20);
  symbol.set_function("run\x1b[2J()");
  symbol.set_line(-3);
  symbols.add_symbols()->set_address(0x30);
  const SymbolsReceived event = symbol_report_from_proto(symbols);
  EXPECT_EQ(event.module, (StackModule{"ab", "/bin/x"}));
  ASSERT_THAT(event.symbols, SizeIs(2));
  EXPECT_EQ(event.symbols[0], (std::pair<uint64_t, FrameSymbol>{0x20, {"run\\x1b[2J()", "", 0}}));
  EXPECT_EQ(event.symbols[1], (std::pair<uint64_t, FrameSymbol>{0x30, {}}));
}

TEST(IncidentMessages, RequestsOfADumpCarryEverything) {
  v1::DumpStacks dump;
  dump_request_to_proto({JobId(3),
                         Attempt(2),
                         DumpId(9),
                         2,
                         std::chrono::seconds(1),
                         std::chrono::milliseconds(1'500),
                         {Rank(4), Rank(5)}},
                        dump);
  EXPECT_EQ(dump.ShortDebugString(),
            "job_id: 3 attempt: 2 dump_id: 9 samples: 2 apart_ms: 1000 deadline_ms: 1500 "
            "ranks: 4 ranks: 5");
  v1::Symbolize symbolize;
  symbolize_to_proto({DumpId(9), JobId(3), Attempt(2), {"ab", "/bin/x"}, {16, 32}}, symbolize);
  EXPECT_EQ(symbolize.ShortDebugString(),
            "job_id: 3 attempt: 2 dump_id: 9 module { build_id: \"ab\" path: \"/bin/x\" } "
            "addresses: 16 addresses: 32");
}

}  // namespace
}  // namespace muster::coordinator
