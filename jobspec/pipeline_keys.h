// The keys that say how a pipeline runs: MaxText's num_layers_per_pipeline_stage, num_pipeline_repeats and num_pipeline_microbatches.
// They have no effect where the mesh has one stage.
#pragma once

#include "common/mesh.h"
#include "jobspec/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Of a config whose model and batch have been read. Layers are stages times layers per stage times repeats: -1 repeats are what is left
// and so are the layers per stage where a person gives the repeats alone. -1 micro-batches are as many as there are stages. The
// reader's status names keys that disagree, and what would do.
void read_pipeline(SettingsReader& reader, const Mesh& mesh, trainer::TrainConfig& train);

}  // namespace muster::jobspec
