/* The two pages that the host and the shim share.

   `limits` is written by the host and mapped read-only in the container: what the container may
   use. `usage` is made by the host and written by the shim: what the container's processes use. The
   host never trusts it.

   Each page begins with magic, version and size. A reader accepts a page of its own version or
   a newer one, of at least the size that it knows: fields are only ever added in reserved space, so
   a running container's shim outlives an upgrade of the host.

   `libvcuda/abi_print.c` prints every offset; a test compares them with the Python mirror in
   `oci/vcuda_oci/pages/layout.py`. Byte order is the machine's.  */

#pragma once

#include <stddef.h>
#include <stdint.h>

#define VCUDA_ABI_VERSION 1
#define VCUDA_LIMITS_MAGIC 0x4d494c56u /* "VLIM" */
#define VCUDA_USAGE_MAGIC 0x47535556u  /* "VUSG" */

#define VCUDA_MAX_GPUS 16
#define VCUDA_MAX_PROCESSES 256
#define VCUDA_ASKING_THREADS 4

/* The shim's files in the container. The paths are fixed, so that no variable of the guest can
   change them.  */
#define VCUDA_GUEST_DIR "/usr/local/vcuda"
#define VCUDA_GUEST_LIMITS VCUDA_GUEST_DIR "/limits"
#define VCUDA_GUEST_USAGE VCUDA_GUEST_DIR "/usage"
/* The driver's libraries in the folder driver_dir. No loader, ldconfig or LD_LIBRARY_PATH finds
   them by these names, so none bypasses the shim.  */
#define VCUDA_DRIVER_CUDA "cuda"
#define VCUDA_DRIVER_NVML "nvml"

enum vcuda_policy
{
  VCUDA_POLICY_FIXED = 0,       /* never more than core_percent */
  VCUDA_POLICY_ELASTIC = 1,     /* more while others leave time, up to core_ceiling_percent */
  VCUDA_POLICY_WEIGHTED = 2,    /* more, by weight */
  VCUDA_POLICY_BEST_EFFORT = 3, /* what other containers leave */
};

enum vcuda_latency
{
  VCUDA_LATENCY_NORMAL = 0, /* its turn comes when the one before has ended */
  VCUDA_LATENCY_LOW = 1,    /* after a rest it cuts into the turn of another container */
};

/* Whether a container may launch, as the turn keeper says (libvcuda/turns): the low bits of `turn`.

   While the word is OPEN the bucket of GPU time pays for the container's work. It begins with what
   the keeper's queue owes the container, or the container the queue: turn_until_ns, signed. When
   the word changes, the queue takes over what the bucket holds then.  */
enum vcuda_turn
{
  VCUDA_TURN_NONE = 0, /* no turns: the bucket of GPU time alone decides */
  VCUDA_TURN_OPEN = 1, /* alone, or together with others without turns: the bucket decides */
  VCUDA_TURN_WAIT = 2, /* let the queue drain, mark WANTS, ring, and wait for a change of the word
                        */
  VCUDA_TURN_HELD = 3, /* launch until turn_until_ns, then let the queue drain and ring */
};
#define VCUDA_TURN_STATE 3u

/* What a process says of one GPU, four bits each in `turn_marks` of its slot.  */
enum vcuda_turn_mark
{
  VCUDA_TURN_BUSY = 1,    /* its queue may hold work */
  VCUDA_TURN_IN_WAIT = 2, /* a thread waits for the queue, and will clear BUSY */
  VCUDA_TURN_WANTS = 4,   /* a thread waits for a turn */
  VCUDA_TURN_MIXED = 8,   /* threads use several streams: event pairs do not show the GPU time */
};
#define VCUDA_TURN_MARK_BITS 4

/* Whether the container's processes are off the GPU, or on the way: `suspended`.  */
enum vcuda_suspended
{
  VCUDA_AWAKE = 0,
  VCUDA_SUSPENDED = 1,  /* by order: calls wait until the host resumes the container */
  VCUDA_UNTIL_CALL = 2, /* because it was idle, or for another's turn: a call asks to be resumed */
};

/* Field lists: F (type, name) is a scalar, A (type, name, count) an array.  */

#define VCUDA_LIMITS_HEAD_FIELDS(F, A)                                                             \
  F (uint32_t, magic)                                                                              \
  F (uint32_t, version)                                                                            \
  F (uint32_t, size)          /* of the whole page */                                              \
  F (uint32_t, gpu_count)     /* entries of `gpu` in use */                                        \
  F (uint64_t, sequence)      /* odd while the host writes: read again */                          \
  A (char, driver_dir, 64)    /* the real libraries, as the container sees them */                 \
  F (uint64_t, rate_until_ns) /* CLOCK_MONOTONIC until which rate_ppm counts; 0: for ever */       \
  F (uint32_t, meter_copies) /* not 0: copies and sets within the GPU are paced as launches are */ \
  F (uint32_t, suspended)    /* futex: enum vcuda_suspended */                                     \
  F (uint32_t, calls_ask)    /* 1: each call looks at `suspended`; never changes */                \
  F (uint32_t, suspensions)  /* grows before a suspended container becomes awake */                \
  A (uint8_t, reserved, 16)

/* After rate_until_ns, or more than VCUDA_LONGEST_LEASE_NS before it, the arbiter is dead or counts
   by another clock: then core_percent is the rate.  */
#define VCUDA_LONGEST_LEASE_NS 10000000000ull
#define VCUDA_LIMITS_GPU_FIELDS(F, A)                                                              \
  A (char, uuid, 48)                 /* as NVML prints it: "GPU-5f1c…", NUL-terminated */          \
  F (uint64_t, memory_bytes)         /* hard limit */                                              \
  F (uint32_t, core_percent)         /* 1..100 of the GPU's time; 100 is not paced */              \
  F (uint32_t, core_ceiling_percent) /* elastic: never above this */                               \
  F (uint32_t, policy)               /* enum vcuda_policy */                                       \
  F (uint32_t, rate_ppm)             /* GPU time granted now, parts per million of real time */    \
  F (uint32_t, weight)                                                                             \
  F (uint32_t, turn)           /* futex: enum vcuda_turn, above it a number of the keeper's */     \
  F (uint64_t, turn_until_ns)  /* HELD: CLOCK_MONOTONIC of its last launch; OPEN: its budget */    \
  F (uint64_t, turn_lease_ns)  /* CLOCK_MONOTONIC until which the keeper is known to be alive */   \
  F (uint64_t, turn_held_ns)   /* time in turns since the container started */                     \
  F (uint64_t, turn_waited_ns) /* time that it waited for a turn */                                \
  F (uint8_t, latency)         /* enum vcuda_latency */                                            \
  F (uint8_t, trim_asked)      /* changes when pools shall give back what they keep */             \
  F (uint16_t, hidden_ms) /* GPU time used beside its turns, modulo 2^16: the keeper charges it */ \
  F (uint8_t, managed_memory) /* 1: cuMemAlloc gives managed memory, which may be moved out */     \
  F (uint8_t, mps_percent)    /* under MPS: its processes' ceiling of multiprocessors; 0: not */   \
  A (uint8_t, reserved, 2)                                                                         \
  F (uint64_t, context_bytes) /* what each context counts against memory_bytes; 0: nothing */

/* calls_inside of a slot and `suspended`: with calls_ask the host stores VCUDA_UNTIL_CALL, then
   reads calls_inside of each live slot; if one is not 0 it stores VCUDA_AWAKE again and wakes the
   futex. A call adds itself to calls_inside, then reads `suspended`; if that is not VCUDA_AWAKE it
   takes itself off, adds to resume_asked and waits. Both sides store first and then read,
   sequentially consistent, so once the host has read zeroes no call is in the driver and each later
   one asks. A call that still waits asks again ten times a second, so that no change of `suspended`
   back and forth leaves it behind.  */

/* What the driver cannot take off the GPU: of slot N, the bit N % 32 of `unsaved` of entry KIND + N
   / 32 of `gpu`.  */
enum vcuda_unsaved
{
  VCUDA_UNSAVED_MANAGED = 0, /* its process holds managed memory */
  VCUDA_UNSAVED_IPC = 8,     /* it has opened memory of another process */
};

/* newer_symbols: answers of cuGetProcAddress that the shim's headers don't know, passed on.
   export_tables: private tables handed out, and the UUIDs of the last ones, each at its number
   modulo VCUDA_EXPORT_TABLE_IDS.  */
#define VCUDA_EXPORT_TABLE_IDS 4
#define VCUDA_USAGE_HEAD_FIELDS(F, A)                                                              \
  F (uint32_t, magic)                                                                              \
  F (uint32_t, version)                                                                            \
  F (uint32_t, size)                                                                               \
  F (uint32_t, slots_used) /* slots from here on were never taken; only grows */                   \
  F (uint32_t, newer_symbols)                                                                      \
  F (uint32_t, export_tables)                                                                      \
  A (uint8_t, export_table_ids, 64)                                                                \
  F (uint32_t, resume_asked) /* grows while calls wait for the end of UNTIL_CALL */                \
  A (uint32_t, off_gpu, 8)   /* a bit for each slot: its bytes are off the GPU by a checkpoint */  \
  A (uint8_t, reserved, 4)

#define VCUDA_USAGE_GPU_FIELDS(F, A)                                                               \
  F (int64_t, balance_ns)    /* GPU time in hand; below 0 is debt */                               \
  F (uint64_t, refilled_ns)  /* CLOCK_MONOTONIC of the last refill */                              \
  F (uint64_t, busy_ns)      /* GPU time used since the container started */                       \
  F (uint64_t, throttled_ns) /* time that launches waited for their share */                       \
  F (uint64_t, launches)                                                                           \
  F (uint64_t, refusals) /* allocations refused with CUDA_ERROR_OUT_OF_MEMORY by the shim */       \
  F (uint64_t,                                                                                     \
     sample_ns) /* CLOCK_MONOTONIC of the last sample of busy_ns, then the one before: */          \
  F (uint64_t, sample_busy) /* what NVML's utilisation is computed from */                         \
  F (uint64_t, earlier_ns)                                                                         \
  F (uint64_t, earlier_busy)                                                                       \
  F (uint64_t, long_until_ns) /* CLOCK_MONOTONIC when long work would end, had it the GPU alone */ \
  F (uint64_t, overrun_ns)    /* the deepest debt ever: one batch took so much beyond its share */ \
  F (uint32_t, bell)          /* futex: the turn keeper sleeps on it */                            \
  F (uint32_t, work_begun)    /* how often a process began to use the idle GPU */                  \
  F (uint64_t, busy_until_ns) /* CLOCK_MONOTONIC when the queued work ends, estimated */           \
  F (uint32_t, turn_taken)    /* the OPEN word with the budget that the bucket has taken */        \
  F (uint32_t, switch_ns)     /* how much longer the first work of a turn takes than later work */ \
  F (uint32_t, room_asked)    /* grows when the driver has no memory left within the share */      \
  F (uint32_t, unsaved)       /* of all GPUs together: enum vcuda_unsaved */

/* One process. It holds an OFD lock on byte VCUDA_USAGE_LOCK_BASE + slot of the page's file. The
   kernel drops the lock when the process dies, and the process that takes it next clears the slot.
   The container's use of a GPU is the sum of held_bytes over live slots: no total is stored, so a
   kill between two writes leaves nothing to repair.  */
#define VCUDA_USAGE_SLOT_FIELDS(F, A)                                                              \
  F (uint32_t, pid)        /* in the container's pid namespace; 0 is free */                       \
  F (uint32_t, generation) /* grows each time the slot is taken */                                 \
  F (uint64_t, start_time) /* clock ticks since boot, field 22 of /proc/PID/stat */                \
  F (uint32_t, asking)     /* low half: reservations now being decided; high half: ever decided */ \
  F (uint32_t, calls_inside) /* calls that may be in the driver; counted with calls_ask only */    \
  A (uint64_t, held_bytes, VCUDA_MAX_GPUS)                                                         \
  A (uint64_t, busy_ns, VCUDA_MAX_GPUS)                                                            \
  A (uint8_t, contexts, VCUDA_MAX_GPUS)             /* live ones; 255: that many or more */        \
  A (uint32_t, thread_asking, VCUDA_ASKING_THREADS) /* odd: that thread is deciding now */         \
  F (uint64_t, turn_marks)                          /* enum vcuda_turn_mark of each GPU */

#define VCUDA_SCALAR(type, name) type name;
#define VCUDA_ARRAY(type, name, count) type name[count];

struct vcuda_limits_gpu
{
  VCUDA_LIMITS_GPU_FIELDS (VCUDA_SCALAR, VCUDA_ARRAY)
};

struct vcuda_limits
{
  VCUDA_LIMITS_HEAD_FIELDS (VCUDA_SCALAR, VCUDA_ARRAY)
  struct vcuda_limits_gpu gpu[VCUDA_MAX_GPUS];
};

struct vcuda_usage_gpu
{
  VCUDA_USAGE_GPU_FIELDS (VCUDA_SCALAR, VCUDA_ARRAY)
};

struct vcuda_usage_slot
{
  VCUDA_USAGE_SLOT_FIELDS (VCUDA_SCALAR, VCUDA_ARRAY)
};

struct vcuda_usage
{
  VCUDA_USAGE_HEAD_FIELDS (VCUDA_SCALAR, VCUDA_ARRAY)
  struct vcuda_usage_gpu gpu[VCUDA_MAX_GPUS];
  struct vcuda_usage_slot slot[VCUDA_MAX_PROCESSES];
};

/* Lock bytes lie beyond the page's end: locking a byte needs no file content there.  */
#define VCUDA_USAGE_LOCK_BASE 0x100000
/* One more byte: only the process that holds it may refuse an allocation.  */
#define VCUDA_USAGE_REFUSE_LOCK (VCUDA_USAGE_LOCK_BASE + VCUDA_MAX_PROCESSES)
/* Of each GPU three ranges of bytes: of the microseconds since which processes wait for the
   container's GPU time, since which they use it, and which a launch that waits takes.  */
#define VCUDA_USAGE_LINE_LOCK (1ull << 56)
#define VCUDA_USAGE_LINE_BITS 48

_Static_assert (sizeof (struct vcuda_limits_gpu) == 128, "one GPU's limits");
_Static_assert (sizeof (struct vcuda_limits) == 128 + 16 * 128, "limits page");
_Static_assert (sizeof (struct vcuda_usage_gpu) == 128, "one GPU's usage, two cache lines");
_Static_assert (sizeof (struct vcuda_usage_slot) == 320, "one process, five cache lines");
_Static_assert (sizeof (struct vcuda_usage) == 128 + 16 * 128 + 256 * 320, "usage page");
