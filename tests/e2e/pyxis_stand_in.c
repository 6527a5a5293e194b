/* A SPANK plugin with pyxis' options that starts no container. It puts the options' values into the tasks' environment.
 *
 * The tests build it with Slurm's header (libslurm-dev). Variables of a task: STAND_IN_IMAGE, STAND_IN_MOUNTS, STAND_IN_WORKDIR.
 */
#include <slurm/spank.h>
#include <string.h>

SPANK_PLUGIN(pyxis_stand_in, 1)

enum { kOptions = 3, kValueMax = 4096 };
static const char *const variables[kOptions] = {"STAND_IN_IMAGE", "STAND_IN_MOUNTS", "STAND_IN_WORKDIR"};
static char values[kOptions][kValueMax];

static int take(int which, const char *value, int remote) {
  (void)remote;
  if (which < 0 || which >= kOptions || strlen(value) >= kValueMax) return ESPANK_BAD_ARG;
  strcpy(values[which], value);
  return ESPANK_SUCCESS;
}

static struct spank_option options[] = {{"container-image", "IMAGE", "the image", 1, 0, take},
                                        {"container-mounts", "FROM:TO", "what it sees", 1, 1, take},
                                        {"container-workdir", "PATH", "where it begins", 1, 2, take},
                                        SPANK_OPTIONS_TABLE_END};

int slurm_spank_init(spank_t spank, int count, char *words[]) {
  (void)count;
  (void)words;
  for (int i = 0; i < kOptions; ++i)
    if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) return ESPANK_ERROR;
  return ESPANK_SUCCESS;
}

int slurm_spank_task_init(spank_t spank, int count, char *words[]) {
  (void)count;
  (void)words;
  for (int i = 0; i < kOptions; ++i)
    if (values[i][0] != '\0' && spank_setenv(spank, variables[i], values[i], 1) != ESPANK_SUCCESS) return ESPANK_ERROR;
  return ESPANK_SUCCESS;
}
