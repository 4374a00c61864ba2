/* A container under MPS.

   The limits come from the limits page, as all others do, and reach the driver by its variables: it
   has no other way for a client. A client may only lower what its server gives, so the variables
   are all that holds the container's share.  */

#include "entry/mps.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "pages/pages.h"
#include "thread/message.h"

#define FOLDER VCUDA_GUEST_DIR "/mps"
#define MIB (1ull << 20)
/* The driver's limit counts contexts too, which the shim charges only where the host says so.  */
#define CONTEXT_MIB 512

static bool
daemon_answers (void)
{
  const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = FOLDER "/control" };
  int fd = socket (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  bool answers = fd >= 0 && connect (fd, (const struct sockaddr *) &address, sizeof address) == 0;
  if (fd >= 0)
    close (fd);
  return answers;
}

/* Puts what the container's static partition is named by into NAME; false: it has none.  */
static bool
read_partition (char name[128])
{
  int fd = open (FOLDER "/partition", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  ssize_t length = fd >= 0 ? read (fd, name, 127) : 0;
  if (fd >= 0)
    close (fd);
  name[length > 0 ? length : 0] = 0;
  return length > 0;
}

CUresult
vcuda_mps_join (void)
{
  const struct vcuda_limits_gpu *share = &vcuda_pages.limits->gpu[0];
  if (!vcuda_gpu_count () || !share->mps_percent)
    return CUDA_SUCCESS;
  if (!daemon_answers ())
    {
      vcuda_report (VCUDA_LINE (FOLDER "/control", "the MPS daemon does not answer",
                                "create the container again"));
      return CUDA_ERROR_MPS_CONNECTION_FAILED;
    }
  char percent[8], pinned[32], partition[128];
  unsigned long long most = (share->memory_bytes + MIB - 1) / MIB + CONTEXT_MIB;
  snprintf (percent, sizeof percent, "%u", (unsigned) share->mps_percent);
  snprintf (pinned, sizeof pinned, "0=%lluM", most);
  if (setenv ("CUDA_MPS_PIPE_DIRECTORY", FOLDER, 1) != 0
      || setenv ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent, 1) != 0
      || setenv ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", pinned, 1) != 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (read_partition (partition) && setenv ("CUDA_MPS_SM_PARTITION", partition, 1) != 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  return CUDA_SUCCESS;
}
