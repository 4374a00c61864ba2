#ifndef SOFTGPU_MPS_V2_PARTITIONS_H
#define SOFTGPU_MPS_V2_PARTITIONS_H

#include "mps/daemon.h"

/* Executes `lspart` and `sm_partition`. False: WORD is neither, or the driver is too old.  */
bool mps_do_partitions (char **word, bool privileged, FILE *out);

#endif
