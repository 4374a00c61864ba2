/* Takes, saves and gives back the credit of threads. A thread that ends gives its remaining credit
   back; a thread that is killed loses at most a portion and a half, about 1.5 ms of GPU time.  */

#include "gpu_time/credit.h"

#include <pthread.h>
#include <stdlib.h>

#include "gpu_time/time_bucket.h"
#include "pages/pages.h"
#include "thread/clock.h"
#include "thread/old_glibc.h"

int vcuda_sampling;
int vcuda_credit_threads;

/* Before glibc 2.34 these are in libpthread, which a program without threads may not load.  */
VCUDA_OLD_GLIBC (pthread_key_create);
VCUDA_OLD_GLIBC (pthread_setspecific);
#pragma weak pthread_key_create
#pragma weak pthread_setspecific

static pthread_key_t key;
static bool key_made;

/* The saved credit of a thread for one GPU that it is not launching on.  */
struct saved_credit
{
  int64_t ns, counted, sampled, waited;
  uint32_t launches;
  bool known, waits, in_turn;
};

static void
save_credit (struct saved_credit *saved_credit)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  *saved_credit = (struct saved_credit){ credit->ns,     credit->counted,  credit->sampled,
                                         credit->waited, credit->launches, true,
                                         credit->waits,  credit->in_turn };
}

static void
restore_credit (int gpu, const struct saved_credit *saved_credit)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  credit->gpu = (int16_t) gpu;
  credit->ns = saved_credit->ns;
  credit->counted = saved_credit->counted;
  credit->sampled = saved_credit->sampled;
  credit->waited = saved_credit->waited;
  credit->launches = saved_credit->launches;
  credit->waits = saved_credit->waits;
  credit->in_turn = saved_credit->in_turn;
}

void
vcuda_charge_time (int gpu, int64_t ns)
{
  if (vcuda_paced (gpu) && !vcuda_thread ()->credit.in_turn)
    vcuda_spend (gpu, ns);
}

static void
give_back (void)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  vcuda_credit_count ();
  if (credit->ns > 0)
    vcuda_charge_time (credit->gpu, -credit->ns);
  credit->ns = credit->counted = credit->sampled = credit->waited = 0;
}

/* The first portion has a random length too, or a thread's first launch would always be a
   sample.  */
static void
take_first_portion (void)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  int64_t portion = vcuda_credit_portion ();
  vcuda_charge_time (credit->gpu, portion);
  vcuda_credit_add (portion);
  credit->waits = true;
}

static void
change_gpu (int gpu)
{
  static const struct saved_credit empty;
  struct vcuda_thread *thread = vcuda_thread ();
  struct vcuda_credit *credit = &thread->credit;
  bool first = true;
  if (credit->gpu < 0)
    restore_credit (gpu, &empty);
  else if (thread->saved_credits
           || (thread->saved_credits = calloc (VCUDA_MAX_GPUS, sizeof *thread->saved_credits)))
    {
      save_credit (&thread->saved_credits[credit->gpu]);
      first = !thread->saved_credits[gpu].known;
      restore_credit (gpu, &thread->saved_credits[gpu]);
    }
  else
    {
      give_back ();
      restore_credit (gpu, &empty);
    }
  if (first)
    take_first_portion ();
}

/* The thread may still launch in a later destructor; it then joins again.  */
static void
leave (void *ignored)
{
  (void) ignored;
  struct vcuda_thread *thread = vcuda_thread ();
  struct vcuda_credit *credit = &thread->credit;
  if (!credit->joined)
    return;
  give_back ();
  for (int gpu = 0; thread->saved_credits && gpu < VCUDA_MAX_GPUS; gpu++)
    if (thread->saved_credits[gpu].known && gpu != credit->gpu)
      {
        restore_credit (gpu, &thread->saved_credits[gpu]);
        give_back ();
      }
  free (thread->saved_credits);
  thread->saved_credits = NULL;
  credit->joined = false;
  credit->context = VCUDA_NO_CONTEXT;
  credit->gpu = -1;
  __atomic_fetch_sub (&vcuda_credit_threads, 1, __ATOMIC_RELAXED);
}

__attribute__ ((constructor)) static void
make_key (void)
{
  key_made = pthread_key_create && pthread_setspecific && pthread_key_create (&key, leave) == 0;
}

/* The destructor of the key is not called for the thread that ends the process.  */
__attribute__ ((destructor)) static void
at_exit (void)
{
  leave (NULL);
}

static void
join (void)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  /* No address, so that virtual time gives the same figures everywhere.  */
  static uint32_t threads;
  uint32_t number = __atomic_add_fetch (&threads, 1, __ATOMIC_RELAXED);
  credit->joined = true;
  credit->random = ((uint32_t) vcuda_now () ^ number * 2654435761u) | 1;
  __atomic_fetch_add (&vcuda_credit_threads, 1, __ATOMIC_RELAXED);
  if (key_made)
    pthread_setspecific (key, credit);
}

void
vcuda_credit_follow (int gpu, CUstream stream)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  if (!credit->joined)
    join ();
  if (credit->gpu != gpu)
    {
      credit->mixed = true;
      change_gpu (gpu);
    }
  credit->stream = stream;
  credit->context = vcuda_thread ()->current.context;
}

int64_t
vcuda_credit_portion (void)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  uint32_t x = credit->random;
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  credit->random = x;
  return VCUDA_SAMPLE_NS / 2 + (int64_t) (x % (uint32_t) VCUDA_SAMPLE_NS);
}

void
vcuda_credit_add (int64_t ns)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  credit->ns += ns;
  credit->counted += ns;
  credit->sampled += ns;
  credit->waited += ns;
}

int64_t
vcuda_credit_used (void)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  int64_t used = credit->counted - credit->ns;
  credit->counted = credit->ns;
  return used;
}

void
vcuda_credit_count (void)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  if (credit->gpu < 0)
    return;
  if (credit->launches)
    __atomic_fetch_add (&vcuda_pages.usage->gpu[credit->gpu].launches, credit->launches,
                        __ATOMIC_RELAXED);
  credit->launches = 0;
  int64_t used = vcuda_credit_used ();
  if (used)
    vcuda_count_busy (credit->gpu, used);
}

void
vcuda_credit_forget (void)
{
  struct vcuda_thread *thread = vcuda_thread ();
  thread->credit = (struct vcuda_credit){ .gpu = -1 };
  thread->saved_credits = NULL;
  vcuda_sampling = 0;
  vcuda_credit_threads = 0;
}
