/* The MPS control daemon: its servers, namespaces, sockets and connections.

   Version 2 of NVIDIA's interface has one server without a name; version 3 has several with names,
   each with namespaces. Version 2's server is the first one in `mps.server`, and its clients are in
   that server's namespace "default".  */

#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "state/attach.h"
#include "state/mps_wire.h"

#define MPS_CONNECTIONS 512
#define MPS_SERVERS 8
#define MPS_SPACES 64
#define MPS_PARTITIONS 32
#define MPS_NAME 65
#define MPS_LISTENERS (2 + MPS_SERVERS * (1 + MPS_SPACES))
/* Multiprocessors of a chunk. Partitions have whole chunks; what is left over is in none.  */
#define MPS_CHUNK 8
#define MPS_CHUNKS (SOFTGPU_MULTIPROCESSORS / MPS_CHUNK)
#define MPS_DEFAULT "default"
#define MPS_V3 3 /* the version with servers and namespaces */
/* The first drivers with version 3, and with static partitions of version 2.  */
#define MPS_FIRST_V3 615
#define MPS_FIRST_PARTITIONS 590

/* What clients get. percent: 0: as much as they ask for.  */
struct limits
{
  double percent;
  uint64_t pinned_bytes[SOFTGPU_MAX_GPUS]; /* by index in `gpu` of the daemon; 0: no limit */
};

/* Multiprocessors of one GPU for the clients that name it or are in its namespace.  */
struct partition
{
  char name[MPS_NAME]; /* "": there is none */
  char id[MPS_PARTITION];
  unsigned device; /* index in `gpu` of the daemon */
  unsigned chunks, multiprocessors;
};

struct space
{
  char name[MPS_NAME]; /* "": there is none */
  struct limits limits;
  const struct partition *partition; /* which its clients have; NULL: which they name */
};

struct server
{
  char name[MPS_NAME]; /* "": there is none */
  char gpus[1024];     /* UUIDs that CUDA_VISIBLE_DEVICES names to it; "": the daemon's */
  bool removed;        /* deleted; its name is free when its process has ended */
  pid_t pid;           /* 0: none runs */
  int fd;              /* on which it says that it is ready */
  uid_t uid;
  bool ready;
  bool ending; /* told to end */
  unsigned slot;
  uint32_t generation;
  struct space space[MPS_SPACES]; /* the first: "default" */
  struct partition partition[MPS_PARTITIONS];
};

enum connection_state
{
  MPS_NEW,
  MPS_PENDING, /* a client that waits for a server */
  MPS_CLIENT,
  MPS_DROPPED,
};

struct connection
{
  int fd;
  enum connection_state state;
  bool privileged; /* it came by control_privileged, or from the daemon's own user */
  pid_t pid;       /* as the daemon sees it; 0: of another pid namespace */
  uid_t uid;
  unsigned slot;
  char partition[MPS_PARTITION]; /* which it names; "": none */
  struct server *server;         /* NULL: it came by the daemon's socket, and is no client yet */
  struct space *space;
};

/* A socket, and the server and namespace of the clients that connect to it.  */
struct listener
{
  int fd;
  bool privileged;
  struct server *server; /* NULL: the daemon's */
  struct space *space;
};

struct daemon
{
  struct attachment tie;
  const char *pipes;
  unsigned version;
  bool multiuser;
  bool is_partitioned; /* version 2 with -S: refuses a client without a partition */
  unsigned gpu_count;
  unsigned gpu[SOFTGPU_MAX_GPUS]; /* entries of the state that CUDA_VISIBLE_DEVICES leaves */
  struct limits limits;           /* of version 2's next server */
  struct server server[MPS_SERVERS];
  unsigned listeners;
  struct listener listener[MPS_LISTENERS];
  unsigned count;
  struct connection connection[MPS_CONNECTIONS];
  bool ended;
};

extern struct daemon mps;

/* Writes one line to control.log, with the time.  */
void mps_log (const char *format, ...) __attribute__ ((format (printf, 1, 2)));

/* Execute the command LINE of USER in version 2 or 3, and print to OUT; return the control
   program's exit status.  */
int mps_do_v2 (const struct connection *user, char *line, FILE *out);
int mps_do_v3 (const struct connection *user, char *line, FILE *out);

/* Executes `lspart` and `sm_partition` of version 2. False: WORD is neither, or the driver is too
   old.  */
bool mps_do_partitions (char **word, bool privileged, FILE *out);

/* Whether the driver's version is at least FIRST.  */
bool mps_driver_has (int first);

/* The index in mps.gpu of a GPU, by number or UUID; -1: none.  */
int mps_device_of (const char *text);

/* The client with this pid; NULL: there is none.  */
const struct connection *mps_client_of (pid_t pid);

/* The client's partition; NULL: it has none. NONE: set if its server has no partitions and needs
   none, so that NULL is no error.  */
const struct partition *mps_partition_of (const struct connection *client, bool *none);

/* Ends the client's GPU work.  */
void mps_terminate (const struct connection *client);

/* Answers the clients that wait for a server that did not start.  */
void mps_refuse (const struct server *server);

void mps_start_server (struct server *server);
void mps_end_server (struct server *server);
bool mps_server_recovers (const struct server *server);
unsigned mps_clients (const struct server *server, const struct space *space);

/* Whether CUDA_VISIBLE_DEVICES names the GPU with this number among those of TIE, or none at all.
 */
bool mps_is_visible (const struct attachment *tie, unsigned number);

/* The server, namespace or partition of this name; NULL: there is none.  */
struct server *mps_server_of (const char *name);
struct partition *mps_named_partition (struct server *server, unsigned device, const char *name);
struct space *mps_space_of (struct server *server, const char *name);

/* The chunks of a GPU that no server's partition has.  */
unsigned mps_free_chunks (unsigned device);

/* Makes a partition. NAME: NULL: its id. NULL: too few chunks are free.  */
struct partition *mps_add_partition (struct server *server, unsigned device, const char *name,
                                     unsigned long chunks);

bool mps_is_name (const char *text);

/* Make them, with their sockets. NULL: no room, a bad name, or the path is too long.  */
struct server *mps_add_server (const char *name, uid_t uid);
struct space *mps_add_space (struct server *server, const char *name);

/* End clients and remove sockets. A server's name is free when its process has ended.  */
void mps_remove_space (struct server *server, struct space *space);
void mps_remove_server (struct server *server);

/* Puts the directory of a server, or of a namespace (NULL: none), into PATH.  */
void mps_folder_of (char path[4096], const struct server *server, const struct space *space);

/* The name of the file in /dev/shm of a server. False: from driver 580 on it has none, but
   anonymous memory, which reaches its clients through the socket.  */
bool mps_shared_name (char name[64], uid_t uid, pid_t pid, const struct softgpu_state *state);

/* The server's own program: never returns. FD: where it says that it is ready.  */
_Noreturn void mps_serve (int fd, uid_t uid, bool multiuser);

/* Serves the listeners until the daemon is told to end.  */
#define MPS_POLL_MS 20
void mps_loop (void);

/* Notices that servers are ready, or have ended.  */
void mps_watch_servers (void);

/* Listens on a socket FOLDER/NAME for clients of SERVER and SPACE; false: it cannot.  */
bool mps_listen (const char *folder, const char *name, unsigned mode, struct server *server,
                 struct space *space);

/* Runs the daemon in the pipe directory PIPES until `quit`; the exit status.  */
int mps_run (const char *pipes, bool in_background);
