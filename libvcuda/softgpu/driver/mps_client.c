/* A process as a client of MPS. It finds the control daemon by CUDA_MPS_PIPE_DIRECTORY, and may
   lower the server's limits by CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and
   CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, as NVIDIA's guide to MPS has them; the percentage of a
   namespace, of version 3, stands whatever the variable says. On a server with static partitions it
   names one by CUDA_MPS_SM_PARTITION, and has all of that one whatever the percentages say.  */

#include "driver/mps_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "state/mps_wire.h"

static int connection = -1;

static bool
dial (void)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  const char *folder = getenv ("CUDA_MPS_PIPE_DIRECTORY");
  int length = snprintf (address.sun_path, sizeof address.sun_path, "%s/" MPS_CONTROL,
                         folder && *folder ? folder : MPS_DEFAULT_PIPES);
  if (length < 0 || (size_t) length >= sizeof address.sun_path)
    return false;
  connection = socket (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connection >= 0
      && connect (connection, (const struct sockaddr *) &address, sizeof address) == 0)
    return true;
  softgpu_leave_mps ();
  return false;
}

void
softgpu_leave_mps (void)
{
  if (connection >= 0)
    close (connection);
  connection = -1;
}

/* The daemon answers when its server is ready, or has room for this user.  */
static bool
ask (struct mps_answer *answer)
{
  struct mps_hello hello = { .magic = MPS_HELLO, .slot = driver.tie.slot };
  const char *partition = getenv ("CUDA_MPS_SM_PARTITION");
  snprintf (hello.partition, sizeof hello.partition, "%s", partition ? partition : "");
  if (send (connection, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
    return false;
  ssize_t length;
  do
    length = recv (connection, answer, sizeof *answer, 0);
  while (length < 0 && errno == EINTR);
  return length == sizeof *answer && answer->magic == MPS_ANSWER
         && answer->gpu_count <= SOFTGPU_MAX_GPUS;
}

static bool
sees_shared (const char *name)
{
  char path[96];
  if (!*name)
    return true;
  snprintf (path, sizeof path, "/dev/shm/%.63s", name);
  int fd = open (path, O_RDWR | O_CLOEXEC);
  if (fd >= 0)
    close (fd);
  return fd >= 0;
}

static uint32_t
own_percent (uint32_t of_server)
{
  const char *text = getenv ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  double percent = text ? strtod (text, NULL) : 0;
  return percent > 0 && percent < of_server ? (percent < 1 ? 1 : (uint32_t) percent) : of_server;
}

/* The limit of the DEVICE-th GPU in a text such as "0=1G,1=512M"; 0: none.  */
static uint64_t
own_limit (unsigned device, const char *uuid)
{
  const char *text = getenv ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  for (const char *at = text; at && *at; at = strchr (at, ',') ? strchr (at, ',') + 1 : NULL)
    {
      char *end;
      size_t length = strlen (uuid);
      bool named = strncmp (at, uuid, length) == 0 && at[length] == '=';
      if (!named && (strtoul (at, &end, 10) != device || end == at || *end != '='))
        continue;
      uint64_t size = strtoull (strchr (at, '=') + 1, &end, 10);
      return size << (*end == 'G' ? 30 : *end == 'M' ? 20 : 0);
    }
  return 0;
}

static void
take (const struct mps_answer *answer)
{
  struct softgpu_slot *own = softgpu_own_slot (&driver.tie);
  softgpu_lock (&driver.tie);
  own->mps_server = answer->server + 1;
  own->mps_generation = answer->generation;
  own->mps_percent = answer->holds ? answer->percent : own_percent (answer->percent);
  own->mps_partition = answer->partition;
  own->mps_multiprocessors = answer->multiprocessors;
  unsigned seen = 0;
  for (unsigned i = 0; i < driver.tie.gpu_count; i++)
    for (unsigned k = 0; k < answer->gpu_count; k++)
      if (answer->gpu[k] == driver.tie.gpu[i])
        {
          unsigned gpu = answer->gpu[k];
          uint64_t limit = own_limit (seen, driver.tie.state->gpu[gpu].uuid);
          uint64_t most = answer->pinned_bytes[k];
          own->gpu[gpu].pinned_bytes = limit && (!most || limit < most) ? limit : most;
          driver.tie.gpu[seen++] = gpu;
          break;
        }
  driver.tie.gpu_count = seen;
  softgpu_unlock (&driver.tie);
}

CUresult
softgpu_join_mps (void)
{
  struct mps_answer answer;
  if (!dial ())
    return CUDA_SUCCESS;
  bool answered = ask (&answer);
  if (answered && !answer.error && sees_shared (answer.shared))
    {
      take (&answer);
      return CUDA_SUCCESS;
    }
  softgpu_leave_mps ();
  return answered && answer.error ? (CUresult) answer.error : CUDA_ERROR_MPS_CONNECTION_FAILED;
}
