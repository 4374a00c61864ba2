/* The software GPU's state file: what the processes and containers of a host share.

   Every process that uses a GPU maps this file and holds one slot of it. It holds an OFD
   lock on byte SOFTGPU_LOCK_BASE + slot of the file, which the kernel drops when the process dies,
   in any pid namespace. No total is stored: memory in use is the sum over live slots, so a process
   that is killed between two writes leaks nothing.  */

#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SOFTGPU_MAGIC 0x31555047544653ull /* "SFTGPU1" */
#define SOFTGPU_VERSION 16

#define SOFTGPU_MAX_GPUS 16
#define SOFTGPU_MIG_DEVICES 7  /* of one GPU at most */
#define SOFTGPU_MAX_ENTRIES 72 /* GPUs and MIG devices: eight GPUs may all be divided */
#define SOFTGPU_MAX_SLOTS 512
#define SOFTGPU_XIDS 16

/* Commands that one process may have outstanding on one GPU.  */
#define SOFTGPU_COMMANDS 1024

/* Streams are spread over lanes, as over hardware's connections: the commands of a lane run in
   order. Lane 0 is the legacy default stream, a barrier between the streams of the blocking lanes.
 */
#define SOFTGPU_LANES 32
#define SOFTGPU_LEGACY_LANE 0
#define SOFTGPU_BLOCKING_LANES 0x0000ffffu

/* A kernel's width counts in threads that are resident at a time.  */
#define SOFTGPU_MULTIPROCESSORS 132
#define SOFTGPU_MULTIPROCESSOR_THREADS 2048
#define SOFTGPU_WHOLE (SOFTGPU_MULTIPROCESSORS * SOFTGPU_MULTIPROCESSOR_THREADS)

#define SOFTGPU_DEFAULT_SLICE_NS 2000000ull
#define SOFTGPU_DEFAULT_SWITCH_NS 100000ull
#define SOFTGPU_DEFAULT_SUBMIT_NS 2000ull
#define SOFTGPU_DEFAULT_KERNEL_NS 10000ull

/* Utilisation is kept as busy time per tenth of a second; a second is ten of them.  */
#define SOFTGPU_PERIOD_NS 100000000ull
#define SOFTGPU_PERIODS 16

/* CUDA_ERROR_MPS_RPC_FAILURE, for the rooms that do not know cuda.h.  */
#define SOFTGPU_SERVER_DIED 806

#define SOFTGPU_LOCK_BASE (1ull << 40) /* beyond the file's end: a lock needs no content there */
#define SOFTGPU_ATTACH_LOCK (SOFTGPU_LOCK_BASE - 1)

enum softgpu_slot_kind
{
  SOFTGPU_FREE = 0,
  SOFTGPU_CUDA = 1,
  SOFTGPU_NVML = 2, /* only queries; never listed as a process of a GPU */
  SOFTGPU_MPS_SERVER = 3,
};

struct softgpu_period
{
  uint32_t number; /* which tenth of a second since boot */
  uint32_t busy_ns;
};

enum softgpu_clock
{
  SOFTGPU_UNKIND = 0, /* time slices with a cost for each switch, streams that overlap */
  SOFTGPU_KIND = 1,   /* no cost, one command of a process at a time, event pairs of own time */
  SOFTGPU_MPS = 2,    /* kernels of all processes at once */
};

enum softgpu_command_kind
{
  SOFTGPU_KERNEL, /* or a copy within the GPU */
  SOFTGPU_RECORD, /* of an event */
  SOFTGPU_STREAM_WAIT,
  SOFTGPU_TO_GPU, /* copies over the bus, each direction with a copy engine of its own */
  SOFTGPU_FROM_GPU,
};

enum softgpu_command_state
{
  SOFTGPU_QUEUED,
  SOFTGPU_RUNNING, /* started; a kernel of a process without the GPU stands still meanwhile */
  SOFTGPU_DONE,
};

struct softgpu_command
{
  uint8_t kind; /* enum softgpu_command_kind */
  uint8_t lane;
  uint8_t state;    /* enum softgpu_command_state */
  uint32_t width;   /* of a kernel, in threads */
  uint32_t count;   /* kernels that this command stands for, one after the other; 0: a copy */
  uint64_t order;   /* among all commands of the GPU */
  uint64_t next;    /* in its lane: number + 1; 0: it is the last */
  uint64_t left_ns; /* of its time */
  union
  {
    uint64_t piece_ns; /* of a kernel: without preemption the turn passes between two pieces */
    uint64_t after;    /* of a stream's wait: number + 1 of the record that it waits for */
    uint64_t ready_ns; /* of a copy: since when it waits for its engine; 0: it does not yet */
    uint64_t stamp_ns; /* of a record */
  };
  uint64_t waited_ns; /* of a record: its process's, at that moment */
  uint64_t padding3;
};

/* Numbers + 1 of the first and the last unfinished command; first is 0 where there is none.  */
struct softgpu_lane
{
  uint64_t first;
  uint64_t last;
};

/* What a process has of a GPU. Commands are numbered by submission.  */
struct softgpu_slot_gpu
{
  _Atomic uint64_t held_bytes;    /* physical: allocations, and what contexts take */
  _Atomic uint64_t managed_bytes; /* besides; may be more than the GPU has */
  uint64_t head;                  /* commands submitted since the slot was taken */
  uint64_t tail;                  /* all below are done */
  uint64_t held_ns;               /* time in which at least one of its kernels ran */
  uint64_t waited_ns; /* time with unfinished commands while another process's kernel ran */
  uint64_t kernels_submitted;
  uint64_t kernels_finished;
  uint64_t thread_ns;    /* as held_ns, times the width that they had, in threads */
  uint64_t pinned_bytes; /* of a client of MPS: the most that it may hold; 0: no limit */
  uint32_t lanes;        /* one bit for each lane with commands */
  uint32_t contexts;
  struct softgpu_lane lane[SOFTGPU_LANES];
  struct softgpu_period period[SOFTGPU_PERIODS];
};

/* What a process had of a GPU, as `softgpu time` prints it.  */
struct softgpu_use
{
  uint32_t gpu;
  uint32_t pid;
  uint64_t pid_namespace;
  char command[16];
  uint64_t held_ns;
  uint64_t thread_ns;
  uint64_t kernels_submitted;
  uint64_t kernels_finished;
};
#define SOFTGPU_ENDED 64 /* of ended processes: the last ones are kept */

enum softgpu_attention
{
  SOFTGPU_ORDERED = 1,    /* failures were ordered */
  SOFTGPU_CHECKPOINT = 2, /* this process is locked, or checkpointed */
  SOFTGPU_FAULTED = 4,    /* a fault has ended its contexts */
};

/* As CUprocessState.  */
enum softgpu_process_state
{
  SOFTGPU_PROCESS_RUNNING,
  SOFTGPU_PROCESS_LOCKED,
  SOFTGPU_PROCESS_CHECKPOINTED,
  SOFTGPU_PROCESS_FAILED,
  SOFTGPU_PROCESS_CHECKPOINTING,
  SOFTGPU_PROCESS_RESTORING,
};

/* Calls of a checkpoint.  */
enum softgpu_step
{
  SOFTGPU_LOCK,
  SOFTGPU_CHECKPOINT_STEP,
  SOFTGPU_RESTORE,
  SOFTGPU_UNLOCK,
  SOFTGPU_COMPLETE,
};

/* What becomes of a process when the caller that copies its memory to or from custom storage ends
   before it has completed the copy.  */
enum softgpu_caller_end
{
  SOFTGPU_LOST,  /* it is FAILED */
  SOFTGPU_STAYS, /* CHECKPOINTING or RESTORING, for ever */
  SOFTGPU_BACK,  /* in the state that it was in before the call */
};

/* An order: a call must fail, or must not return before heal (error SOFTGPU_HANGS).  */
#define SOFTGPU_HANGS (-1)
struct softgpu_order
{
  char call[64]; /* "cuMemAlloc_v2"; empty: no order */
  uint32_t nth;  /* counted over all processes, from the order on; 0: every one */
  _Atomic int32_t error;
  _Atomic uint32_t calls;
  uint32_t gpu; /* only calls of NVML that name this one, counted from 1; 0: any call */
};
#define SOFTGPU_ORDERS 16

/* The driver's own limit of what processes hold of a GPU. Hardware goes by the process's cgroup,
   which a process cannot see whole from inside; here the processes of one pid namespace share a
   limit.  */
struct softgpu_limit
{
  uint64_t pid_namespace; /* 0: no limit stands here */
  uint64_t soft_bytes;
  uint64_t hard_bytes;
  uint32_t gpu;
};
#define SOFTGPU_LIMITS 256

struct softgpu_slot
{
  uint32_t kind; /* enum softgpu_slot_kind */
  uint32_t pid;  /* in its own pid namespace */
  _Atomic uint32_t generation;
  _Atomic uint32_t attention;  /* enum softgpu_attention: what calls must look at first */
  _Atomic uint32_t checkpoint; /* enum softgpu_process_state: see process_state.h */
  _Atomic uint32_t calls;      /* host functions, and calls that hang on order */
  _Atomic uint64_t copied_ns;  /* when the copy of a checkpoint or a restore ends */
  uint32_t copier; /* slot + 1 of the process that copies to or from custom storage; 0: none */
  uint32_t in_custom_storage;     /* where the last checkpoint has put its memory */
  _Atomic uint32_t parts_fd;      /* descriptor + 1 of the list of its memory: see parts.h */
  _Atomic uint64_t parts_offset;  /* of the list, in that file */
  _Atomic uint32_t shares_memory; /* it has opened other processes' memory */
  uint32_t unrestorable;          /* a restore found no room, so later ones fail */
  /* Of a client of MPS: its server's slot + 1, that server's generation, and how much of a GPU its
     kernels may fill: a percentage, or the multiprocessors of a static partition, which only the
     partition's clients use.  */
  uint32_t mps_server;
  uint32_t mps_generation;
  uint32_t mps_percent;
  uint32_t mps_partition; /* its number among its server's + 1; 0: none */
  uint32_t mps_multiprocessors;
  _Atomic uint32_t fault; /* what each later call returns; of an MPS server: it recovers; 0: none */
  uint64_t pid_namespace; /* inode of /proc/self/ns/pid; 0 where /proc is missing */
  char command[16];
  /* By the index that a GPU of the process had at its cuInit: the index now, after restores onto
     other GPUs.  */
  uint32_t place[SOFTGPU_MAX_ENTRIES];
  struct softgpu_slot_gpu gpu[SOFTGPU_MAX_ENTRIES];
};

struct softgpu_gpu
{
  char name[64];
  char uuid[48]; /* as NVML prints it */
  uint64_t memory_bytes;
  uint32_t minor;
  uint32_t pci_bus;
  uint32_t divided; /* it is in MIG mode */
  uint32_t made;    /* MIG devices and instances that it has had: each UUID is new */
  /* Of a GPU instance, which is an entry of its own behind the GPUs; without a UUID until it has a
     compute instance, and is a MIG device.  */
  uint32_t parent; /* its GPU's index + 1; 0: it is none */
  uint32_t number; /* among its GPU's */
  uint32_t instance;
  uint32_t slices;
  uint32_t profile; /* index of its shape: see mig/geometry.h */
  uint32_t start;   /* the first memory slice */
  uint32_t serial;  /* tells it from earlier ones in this entry */

  uint64_t clock_ns;  /* device time: everything before it is decided */
  uint64_t begun_ns;  /* its first moment: the time since then is in three parts */
  uint64_t busy_ns;   /* at least one kernel ran */
  uint64_t switch_ns; /* lost to switches between processes */
  uint64_t idle_ns;
  uint64_t submissions;
  uint64_t slice_left_ns;
  uint64_t switch_left_ns;     /* of the switch to the current process */
  uint32_t current;            /* slot that has the turn */
  uint32_t current_generation; /* of that slot; 0: no process has had the turn yet */
  uint32_t current_server;     /* slot + 1 of the MPS server of its clients; 0: it is one process */
  uint32_t current_server_generation;
  uint32_t exclusive;    /* one process at a time has contexts, or the clients of one MPS server */
  _Atomic uint32_t lost; /* fell off the bus */
  _Atomic uint32_t xid[SOFTGPU_XIDS]; /* the last events for NVML; the nth is at n % XIDS */
  _Atomic uint32_t xid_count;
  _Atomic uint64_t ecc_corrected;
  _Atomic uint64_t ecc_uncorrected;
  uint64_t backlogged[SOFTGPU_MAX_SLOTS / 64]; /* one bit a slot */
  struct softgpu_period period[SOFTGPU_PERIODS];
};

/* How the GPUs are joined, in groups of so many by their index; 0: there are none of the kind.  */
struct softgpu_topology
{
  uint32_t reported; /* whether NVML reports it */
  uint32_t nvlink;   /* joined to each other by NVLinks */
  uint32_t nvswitch; /* NVLinks of each GPU that lead to a switch: the only one that is no group */
  uint32_t pcie;     /* behind one PCIe switch */
  uint32_t numa;     /* on one NUMA node */
};

struct softgpu_state
{
  uint64_t magic;
  uint32_t version;
  uint32_t gpu_count;
  uint32_t entries;      /* of gpu[]: the GPUs, then room for MIG devices where there may be some */
  _Atomic uint32_t lock; /* 0, or its holder: see lock.c */
  _Atomic uint32_t slots_used; /* slots from here on were never taken; only grows */
  uint64_t reaped_ns;
  uint32_t clock;         /* enum softgpu_clock */
  uint32_t no_preemption; /* kernels run to their ends */
  uint64_t slice_ns;
  uint64_t switch_ns; /* what a change of process costs */
  uint64_t submit_ns; /* what a submission takes of the calling thread */
  uint64_t copy_rate; /* bytes a second of copies and sets on the device; 0: they take no time */
  uint64_t bus_rate;  /* of copies from and to the host, likewise */
  uint64_t checkpoint_rate; /* bytes a second; 0: a checkpoint takes no time */
  uint64_t restore_rate;
  _Atomic uint32_t ordered;  /* whether any failure is */
  uint32_t no_managed;       /* the GPUs are of the kind without managed memory */
  _Atomic uint32_t given_up; /* enum softgpu_step + 1: the next such call gives its process up */
  uint32_t caller_end;       /* enum softgpu_caller_end */
  uint64_t context_bytes;    /* what a context takes of its GPU */
  struct softgpu_topology topology;
  struct softgpu_order order[SOFTGPU_ORDERS];
  struct softgpu_limit limit[SOFTGPU_LIMITS];
  int32_t cuda_version;
  char driver_version[28];
  struct softgpu_gpu gpu[SOFTGPU_MAX_ENTRIES];
  uint64_t ended_count; /* the nth is at n % SOFTGPU_ENDED */
  struct softgpu_use ended[SOFTGPU_ENDED];
  struct softgpu_slot slot[SOFTGPU_MAX_SLOTS];
  /* While one process changes another's slot: that slot + 1, and what it was. If the first one is
     killed meanwhile, the next holder of the lock puts it back: a driver does all or nothing.  */
  _Atomic uint32_t changing;
  struct softgpu_slot unchanged;
  struct softgpu_command command[]; /* [gpu][slot][SOFTGPU_COMMANDS] */
};

static inline size_t
softgpu_state_size (uint32_t entries)
{
  return sizeof (struct softgpu_state)
         + (size_t) entries * SOFTGPU_MAX_SLOTS * SOFTGPU_COMMANDS
               * sizeof (struct softgpu_command);
}

/* The kernel's capability files' minors, as a driver numbers them: of a GPU instance, and of the
   compute instance that is all of it.  */
#define SOFTGPU_CAPABILITY_MINOR(minor, instance) (3 + (minor) * 15 * 9 + (instance) * 9)
