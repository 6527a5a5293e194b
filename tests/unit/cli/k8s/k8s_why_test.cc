#include "cli/k8s/k8s_why.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json list_of(const std::vector<json>& items) { return {{"kind", "List"}, {"items", items}}; }

json pod(const std::string& name, json status, const std::string& node = "") {
  return {{"kind", "Pod"},
          {"metadata", {{"name", name}}},
          {"spec", {{"nodeName", node}}},
          {"status", std::move(status)}};
}

json warning(const std::string& kind, const std::string& name, const std::string& reason,
             const std::string& message, const std::string& when = "2026-11-25T12:00:00Z") {
  return {{"type", "Warning"},
          {"reason", reason},
          {"message", message},
          {"lastTimestamp", when},
          {"involvedObject", {{"kind", kind}, {"name", name}}}};
}

json waiting(const std::string& reason, const std::string& message) {
  return {{"phase", "Pending"},
          {"containerStatuses",
           json::array({{{"name", "worker"},
                         {"image", "r/muster:1"},
                         {"state", {{"waiting", {{"reason", reason}, {"message", message}}}}}}})}};
}

const json kReady = {{"phase", "Running"},
                     {"conditions", json::array({{{"type", "Ready"}, {"status", "True"}}})}};

TEST(K8sWhy, ReadyPodsHaveNoTroubles) {
  const K8sReport report = k8s_report(list_of({pod("a", kReady, "n1")}), list_of({}));
  EXPECT_EQ(report.pods, 1);
  EXPECT_EQ(report.ready, 1);
  EXPECT_THAT(report.troubles, IsEmpty());
  EXPECT_EQ(k8s_text(report, "training"),
            "Kubernetes, namespace training: 1 of 1 pod of Muster ready\n");
}

TEST(K8sWhy, ALongMessageIsCutBetweenCharacters) {
  std::string message = "x";
  for (int i = 0; i < 400; ++i) message += "é";
  const K8sReport report =
      k8s_report(list_of({pod("a", waiting("ImagePullBackOff", message))}), list_of({}));
  EXPECT_THAT(k8s_to_json(report).dump(), HasSubstr("é…"));
}

TEST(K8sWhy, AnUnschedulablePodHasTheSchedulersReason) {
  const json status = {{"phase", "Pending"},
                       {"conditions", json::array({{{"type", "PodScheduled"},
                                                    {"status", "False"},
                                                    {"reason", "Unschedulable"},
                                                    {"message", "0/3 nodes are available"}}})}};
  EXPECT_THAT(k8s_report(list_of({pod("a", status)}), {}).troubles,
              ElementsAre("pod a is not scheduled: 0/3 nodes are available"));
}

TEST(K8sWhy, AnImageThatCannotBePulledIsNamed) {
  EXPECT_THAT(
      k8s_report(list_of({pod("a", waiting("ImagePullBackOff", "Back-off pulling"), "n1")}), {})
          .troubles,
      ElementsAre("pod a cannot pull the image r/muster:1 of worker (ImagePullBackOff): "
                  "Back-off pulling"));
}

TEST(K8sWhy, AMissingSecretIsTheNewestOfItsWarnings) {
  const json objects = list_of({pod("a", waiting("ContainerCreating", ""), "n1")});
  const json events = list_of(
      {warning("Pod", "a", "FailedMount", "secret \"old\" not found", "2026-11-25T11:00:00Z"),
       warning("Pod", "a", "FailedMount", "secret \"muster-tls\" not found"),
       warning("Pod", "b", "FailedMount", "another pod's", "2026-11-25T13:00:00Z")});
  EXPECT_THAT(k8s_report(objects, events).troubles,
              ElementsAre("pod a waits for a volume: secret \"muster-tls\" not found"));
}

TEST(K8sWhy, AQuotaExplainsMissingPods) {
  const json set = {{"kind", "StatefulSet"},
                    {"metadata", {{"name", "cpu"}}},
                    {"spec", {{"replicas", 4}}},
                    {"status", {{"replicas", 1}}}};
  const json events = list_of({warning("StatefulSet", "cpu", "FailedCreate", "exceeded quota")});
  EXPECT_THAT(k8s_report(list_of({set}), events).troubles,
              ElementsAre("StatefulSet cpu has 1 of 4 pods: exceeded quota"));
  json whole = set;
  whole["status"]["replicas"] = 4;
  EXPECT_THAT(k8s_report(list_of({whole}), events).troubles, IsEmpty()) << "that is over";
}

TEST(K8sWhy, ASuspendedJobWaitsForItsQueue) {
  const json job = {{"kind", "Job"},
                    {"metadata", {{"name", "workers"}}},
                    {"spec", {{"parallelism", 4}, {"suspend", true}}},
                    {"status", json::object()}};
  EXPECT_THAT(k8s_report(list_of({job}), {}).troubles.at(0), HasSubstr("waits for its queue"));
}

TEST(K8sWhy, ACrashLoopHasItsExitCode) {
  json status = waiting("CrashLoopBackOff", "back-off 5m0s");
  status["phase"] = "Running";
  status["containerStatuses"][0]["lastState"] = {
      {"terminated", {{"exitCode", 137}, {"reason", "OOMKilled"}}}};
  EXPECT_THAT(k8s_report(list_of({pod("a", status, "n1")}), {}).troubles.at(0),
              HasSubstr("the last time after exit code 137 (OOMKilled)"));
}

// Pods of a JobSet are not restarted: their Job creates new ones.
TEST(K8sWhy, AFailedPodHasItsExitCode) {
  json status = {
      {"phase", "Failed"},
      {"containerStatuses",
       json::array({{{"name", "worker"},
                     {"state", {{"terminated", {{"exitCode", 1}, {"reason", "Error"}}}}}}})}};
  json& end = status["containerStatuses"][0]["state"]["terminated"];
  const auto troubles = [&] { return k8s_report(list_of({pod("a", status, "n1")}), {}).troubles; };
  EXPECT_THAT(troubles(), ElementsAre("pod a has failed: worker ended with exit code 1; kubectl "
                                      "logs shows its output"));
  end = {{"exitCode", 128}, {"reason", "StartError"}, {"message", "no such file"}};
  EXPECT_THAT(troubles().at(0),
              HasSubstr("worker ended with exit code 128 (StartError): no such file"));
  end = {{"exitCode", 75}, {"reason", "Error"}};
  EXPECT_THAT(troubles(), IsEmpty()) << "the pod was evicted";
}

TEST(K8sWhy, AClaimWithoutAVolumeIsNamed) {
  const json claim = {{"kind", "PersistentVolumeClaim"},
                      {"metadata", {{"name", "state"}}},
                      {"status", {{"phase", "Pending"}}}};
  const json events = list_of(
      {warning("PersistentVolumeClaim", "state", "ProvisioningFailed", "no storage class")});
  EXPECT_THAT(k8s_report(list_of({claim}), events).troubles,
              ElementsAre("claim state has no volume: no storage class"));
}

TEST(K8sWhy, ManyTroublesAreCounted) {
  std::vector<json> pods;
  for (size_t i = 0; i < kK8sTroublesMax + 7; ++i)
    pods.push_back(pod("a", waiting("ErrImagePull", ""), "n1"));
  const K8sReport report = k8s_report(list_of(pods), {});
  EXPECT_EQ(report.troubles.size(), kK8sTroublesMax);
  EXPECT_EQ(report.unnamed, 7);
  EXPECT_THAT(k8s_text(report, ""), HasSubstr("and 7 more"));
}

TEST(K8sWhy, TheLogOfKubectlIsNotShown) {
  EXPECT_EQ(without_log("kubectl get ended with 1: E1126 13:58:39.602865    5776 memcache.go:265] "
                        "\"Unhandled Error\" err=\"connection refused\"\n"
                        "E1126 13:58:39.602866    5776 memcache.go:265] \"Unhandled Error\"\n"
                        "The connection to the server localhost:8080 was refused"),
            "The connection to the server localhost:8080 was refused");
  const char* kubectl_output = "kubectl get ended with 1: pods is forbidden\nevents is forbidden";
  EXPECT_EQ(without_log(kubectl_output), kubectl_output);
}

TEST(K8sWhy, MalformedObjectsAreIgnored) {
  for (const json& odd : {json(), json(5), json::array(), json{{"items", "none"}},
                          list_of({json(), json("x"), {{"kind", 3}}, {{"kind", "Service"}}})}) {
    EXPECT_THAT(k8s_report(odd, odd).troubles, IsEmpty()) << odd;
  }
  const json bare = {{"kind", "Pod"},
                     {"status", {{"conditions", 5}, {"containerStatuses", {1, 2}}}}};
  EXPECT_EQ(k8s_report(list_of({bare}), {}).pods, 1);
}

}  // namespace
}  // namespace muster::cli
