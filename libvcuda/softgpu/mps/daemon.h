/* The MPS control daemon: its server, the connections to it, and what it was told.  */

#ifndef SOFTGPU_MPS_DAEMON_H
#define SOFTGPU_MPS_DAEMON_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "state/attach.h"
#include "state/mps_wire.h"

#define MPS_CONNECTIONS 512

enum connection_state
{
  MPS_NEW,
  MPS_PENDING, /* a client that waits for a server */
  MPS_CLIENT,
};

struct connection
{
  int fd;
  enum connection_state state;
  bool privileged; /* it came by control_privileged, or from the daemon's own user */
  pid_t pid;       /* as the daemon sees it; 0: of another pid namespace */
  uid_t uid;
  unsigned slot;
};

/* What a server's clients get.  */
struct limits
{
  double percent;
  uint64_t pinned_bytes[SOFTGPU_MAX_GPUS]; /* by index in `gpu` of the daemon; 0: no limit */
};

struct server
{
  pid_t pid; /* 0: none runs */
  int fd;    /* on which it says that it is ready */
  uid_t uid;
  bool ready;
  bool ending; /* told to end */
  unsigned slot;
  uint32_t generation;
  struct limits limits;
};

struct daemon
{
  struct attachment tie;
  bool multiuser;
  unsigned gpu_count;
  unsigned gpu[SOFTGPU_MAX_GPUS]; /* entries of the state that CUDA_VISIBLE_DEVICES leaves */
  struct limits limits;           /* of the next server */
  struct server server;
  unsigned count;
  struct connection connection[MPS_CONNECTIONS];
  bool ended;
};

extern struct daemon mps;

/* Writes one line to control.log, with the time.  */
void mps_log (const char *format, ...) __attribute__ ((format (printf, 1, 2)));

/* Does LINE, and writes what is printed to OUT.  */
void mps_do (char *line, bool privileged, FILE *out);

void mps_start_server (uid_t uid);
void mps_end_server (void);
bool mps_server_recovers (void);
unsigned mps_clients (void);
unsigned mps_most_clients (void);

/* The name of the file in /dev/shm of the server PID for UID.  */
void mps_shared_name (char name[64], uid_t uid, pid_t pid);

/* The server's own program: never returns. FD: where it says that it is ready.  */
_Noreturn void mps_serve (int fd, uid_t uid, bool multiuser);

/* Serves the sockets `control` and `control_privileged` until the daemon is told to end.  */
#define MPS_LOOK_MS 20
void mps_loop (const int listener[2]);

/* Notices that the server is ready, or has ended.  */
void mps_watch_server (void);

/* Runs the daemon in the pipe directory PIPES until `quit`; the exit status.  */
int mps_run (const char *pipes, bool in_background, bool multiuser);

/* Sends the lines of standard input to the daemon; the exit status.  */
int mps_ask (const char *pipes);

#endif
