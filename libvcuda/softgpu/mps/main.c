/* nvidia-cuda-mps-control and nvidia-cuda-mps-server of the software GPU: version 2 of NVIDIA's
   control interface, and version 3 where the driver has it.  */

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mps/daemon.h"

struct options
{
  bool daemon, in_background, quit;
  bool multiuser[2]; /* as version 2 has it, and as version 3 does */
  bool is_partitioned;
  unsigned version;
  int words; /* the first of them in argv; argc: none */
};

static int
usage (void)
{
  fputs ("usage: nvidia-cuda-mps-control [-d | -f] [-multiuser-server]\n"
         "       nvidia-cuda-mps-control [-d | -f] -S [-multiuser-server] (from driver 590 on)\n"
         "       nvidia-cuda-mps-control [-d | -f] -p 3 [-m]    (from driver 615 on)\n"
         "       nvidia-cuda-mps-control -q | <module> <verb> [arguments]\n",
         stderr);
  return 1;
}

static int
driver (void)
{
  struct attachment tie;
  if (softgpu_attach (&tie, SOFTGPU_NVML) != ATTACHED)
    return 0;
  int version = atoi (tie.state->driver_version);
  softgpu_detach (&tie);
  return version;
}

static bool
is (const char *word, const char *name, const char *longer)
{
  return strcmp (word, name) == 0 || strcmp (word, longer) == 0;
}

static bool
read_options (int argc, char **argv, struct options *options)
{
  bool is_new = false; /* an option of version 3 was given */
  *options = (struct options){ .version = 2, .words = argc };
  for (int i = 1; i < argc; i++)
    if (is (argv[i], "-d", "--daemon") || is (argv[i], "-f", "--foreground"))
      {
        options->daemon = true;
        options->in_background = is (argv[i], "-d", "--daemon");
      }
    else if (strcmp (argv[i], "-multiuser-server") == 0)
      options->multiuser[0] = true;
    else if (is (argv[i], "-m", "--multiuser"))
      is_new = options->multiuser[1] = true;
    else if (is (argv[i], "-S", "--static-partitioning"))
      options->is_partitioned = true;
    else if (is (argv[i], "-q", "--quit"))
      is_new = options->quit = true;
    else if (is (argv[i], "-p", "--protocol") && i + 1 < argc)
      {
        is_new = true;
        options->version = (unsigned) atoi (argv[++i]);
      }
    else if (argv[i][0] != '-' && i == 1)
      {
        is_new = true;
        options->words = i;
        break;
      }
    else
      return false;
  if (options->is_partitioned && driver () < MPS_FIRST_PARTITIONS)
    return false;
  const char *version = getenv ("CUDA_MPS_PROTOCOL_VERSION");
  if (!is_new && !version)
    return true;
  if (driver () < MPS_FIRST_V3)
    return !is_new; /* a program before it knows neither the options nor the variable */
  if (version)
    options->version = (unsigned) atoi (version);
  return (options->version == 2 || (options->version == MPS_V3 && !options->is_partitioned))
         && !options->multiuser[options->version == 2];
}

static int
dial (const char *pipes, const char *name)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int length = snprintf (address.sun_path, sizeof address.sun_path, "%s/%s", pipes, name);
  if (length < 0 || (size_t) length >= sizeof address.sun_path)
    return -1;
  int fd = socket (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect (fd, (const struct sockaddr *) &address, sizeof address) == 0)
    return fd;
  if (fd >= 0)
    close (fd);
  return -1;
}

/* The exit status; -1: the daemon has ended.  */
static int
send_line (int fd, const char *line)
{
  static char answer[65536];
  if (send (fd, line, strlen (line), MSG_NOSIGNAL) < 0)
    return -1;
  ssize_t length = recv (fd, answer, sizeof answer, 0);
  if (length < 2)
    return -1;
  fwrite (answer, 1, (size_t) length - 2, stdout); /* a NUL and the status end it */
  fflush (stdout);
  return answer[length - 1];
}

/* Sends LINE, or where it is NULL each line of the input, to the daemon; the exit status.  */
static int
ask (const char *pipes, const char *line)
{
  char input[512];
  int fd = dial (pipes, MPS_PRIVILEGED);
  if (fd < 0)
    fd = dial (pipes, MPS_CONTROL);
  if (fd < 0)
    {
      puts ("Cannot find MPS control daemon process");
      return 1;
    }
  int status = line ? send_line (fd, line) : 0;
  while (!line && status >= 0 && fgets (input, sizeof input, stdin))
    {
      input[strcspn (input, "\n")] = 0;
      if (*input)
        status = send_line (fd, input);
    }
  close (fd);
  return line ? status != 0 : 0;
}

int
main (int argc, char **argv)
{
  const char *name = strrchr (argv[0], '/') ? strrchr (argv[0], '/') + 1 : argv[0];
  if (strcmp (name, "nvidia-cuda-mps-server") == 0)
    {
      if (argc != 4)
        return usage ();
      mps_serve (atoi (argv[1]), (uid_t) strtoul (argv[2], NULL, 10), *argv[3] == 'm');
    }
  struct options options;
  if (!read_options (argc, argv, &options))
    return usage ();
  const char *pipes = getenv ("CUDA_MPS_PIPE_DIRECTORY");
  if (!pipes || !*pipes)
    pipes = MPS_DEFAULT_PIPES;
  if (options.daemon)
    {
      mps.version = options.version;
      mps.is_partitioned = options.is_partitioned;
      mps.multiuser = options.multiuser[0] || options.multiuser[1];
      return mps_run (pipes, options.in_background);
    }
  if (options.quit)
    return ask (pipes, "quit");
  char line[512] = "";
  for (int i = options.words; i < argc; i++)
    if (strlen (line) + strlen (argv[i]) + 2 > sizeof line)
      return usage ();
    else
      strcat (strcat (line, *line ? " " : ""), argv[i]);
  return ask (pipes, *line ? line : NULL);
}
