// The keys of pipeline schedules: MaxText's num_layers_per_pipeline_stage, num_pipeline_repeats and
// num_pipeline_microbatches. On a mesh with one pipeline stage these keys have no effect.
#pragma once

#include "common/job/mesh.h"
#include "jobspec/settings/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Reads the keys into `train`. The number of layers equals stages times layers per stage times
// repeats: the function computes repeats if they are -1, and layers per stage if only repeats are
// given. -1 micro-batches means one per stage. Stores an error in `reader` that names incompatible
// keys and the nearest valid values. Requires that the model and the batch have been read.
void read_pipeline(SettingsReader& reader, const Mesh& mesh, trainer::TrainConfig& train);

}  // namespace muster::jobspec
