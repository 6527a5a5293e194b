// The keys of pipeline schedules: MaxText's num_layers_per_pipeline_stage, num_pipeline_repeats and
// num_pipeline_microbatches. They have no effect on a mesh with one stage.
#pragma once

#include "common/mesh.h"
#include "jobspec/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Requires that the model and the batch have been read. The number of layers is stages times layers
// per stage times repeats: repeats of -1 are computed from the rest, and so are the layers per
// stage if only the repeats are given. -1 micro-batches: one per stage. The reader keeps an error
// that names incompatible keys and the nearest valid values.
void read_pipeline(SettingsReader& reader, const Mesh& mesh, trainer::TrainConfig& train);

}  // namespace muster::jobspec
