// The verdict from logs: what the last lines of the ranks of a program show about the next attempt.
// The table of errors (common/text/error_family.h) names the family of each end. Together with the
// places of the ends it decides:
//
//   stop                the same error of the program, its data or its setup on all ranks that
//                       could report one, or twice in a row; not for data and setup of a job that
//                       has trained
//   restart elsewhere   an error of the hardware or the setup of one node
//   restart in place    all others
//
// Pure functions of the job's record.
#pragma once

#include <cstdint>
#include <string>

#include "common/text/error_family.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Returns the family of the end of a rank of a program; null: it is not known, or the worker
// has found another reason.
const ErrorFamily* family_of(const RankExit& exit);
// Returns the family of a fault; null: it is not known.
const ErrorFamily* family_of(const Fault& fault);

// Returns whether the fault shows by its family that the node, and not the job, is the cause: the
// hardware failed, or the node lacks what the others have.
bool names_its_node(const Fault& fault);

// Returns whether the fault is a failure of the hardware of nodes by its family.
bool is_of_hardware(const Fault& fault);

// Returns whether the fault of a job that has trained is about files, devices or services, which it
// has found before: storage may be away for some time. Such a job is never stopped at once; it
// waits.
bool may_be_outage(const Fault& fault);

// Returns the number of ranks of the attempt that have ended by the same error as the newest fault,
// if this shows that the job itself is the cause: at least half of the ranks and at least two,
// while no rank has another cause of its own. 0 otherwise, and for may_be_outage(). A job on
// several nodes must have the error on two of them; so must a job on one node whose error is about
// files or devices, as long as there is another node. Ranks that were ordered to stop could report
// none.
int32_t ranks_with_same_error(const Job& job);
// Returns whether the job's current attempt uses none of the nodes of the attempt before it.
bool shares_no_node(const Job& job);
// Returns whether ranks on two nodes have ended by an error of the newest fault's family: then no
// single node is the cause.
bool is_on_several_nodes(const Job& job);

// Returns whether the fault is about software, files, permissions or devices that its node lacks.
bool is_of_setup(const Fault& fault);

// Fills in the family, the place and the error of the fault that `exit` is.
void take_family(const RankExit& exit, Fault& fault);
// Returns whether the rank of a program has reported a known consequence of another rank's fault:
// such a rank is a witness. The rank that caused the fault is found by other reports.
bool is_witness(const RankExit& exit);

}  // namespace muster::coordinator
