/* The GPUs and their containers, and a thread for each GPU with containers.  */

#include "keeper/gpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keeper/turns.h"
#include "tenant/bells.h"

#define STACK_BYTES (64 << 10)

static struct gpu *gpus;

static void
sleep_until (struct gpu *gpu, uint64_t until, uint32_t changes)
{
  struct bells bells
      = { .count = 1, .sole = gpu->count == 1, .word = { &gpu->changes }, .value = { changes } };
  struct tenant *of[BELLS];
  for (int i = 0; i < gpu->count; i++)
    {
      struct tenant *tenant = gpu->tenants[i];
      if (tenant_is_muted (tenant))
        continue;
      if (bells.count < BELLS)
        {
          of[bells.count] = tenant;
          bells.word[bells.count] = &tenant->container->usage_at->gpu[tenant->gpu].bell;
          bells.value[bells.count] = tenant->signals.bell;
        }
      bells.count++;
    }
  pthread_mutex_unlock (&gpu->mutex);
  int woke = bells_wait (&bells, until);
  pthread_mutex_lock (&gpu->mutex);
  if (woke > 0 && __atomic_load_n (&gpu->changes, __ATOMIC_SEQ_CST) == changes)
    tenant_woke (of[woke]);
}

static void *
keep_turns (void *argument)
{
  struct gpu *gpu = argument;
  uint64_t until = 0;
  pthread_mutex_lock (&gpu->mutex);
  gpu->passed_ns = bells_now ();
  while (gpu->count)
    {
      uint32_t changes = __atomic_load_n (&gpu->changes, __ATOMIC_SEQ_CST);
      until = turns_poll (gpu, until <= bells_now ());
      sleep_until (gpu, until, changes);
    }
  gpu->has_thread = false;
  pthread_mutex_unlock (&gpu->mutex);
  return NULL;
}

static void
start_thread (struct gpu *gpu)
{
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init (&attributes);
  pthread_attr_setstacksize (&attributes, STACK_BYTES);
  pthread_attr_setdetachstate (&attributes, PTHREAD_CREATE_DETACHED);
  /* Signals are the main thread's, but for that of a read (mapped.h).  */
  sigset_t all, before;
  sigfillset (&all);
  sigdelset (&all, SIGBUS);
  pthread_sigmask (SIG_SETMASK, &all, &before);
  gpu->has_thread = pthread_create (&thread, &attributes, keep_turns, gpu) == 0;
  pthread_sigmask (SIG_SETMASK, &before, NULL);
  pthread_attr_destroy (&attributes);
  if (!gpu->has_thread)
    fprintf (stderr,
             "vcuda-turn-keeper: no thread can be started for GPU %s; its containers go by"
             " their own rates\n",
             gpu->uuid);
}

/* Its thread then reads all containers before it uses what it knows of one.  */
static void
notify_thread (struct gpu *gpu)
{
  __atomic_fetch_add (&gpu->changes, 1, __ATOMIC_SEQ_CST);
  bells_wake (&gpu->changes);
}

struct gpu *
gpu_of (const char *uuid)
{
  for (struct gpu *gpu = gpus; gpu; gpu = gpu->next)
    if (strcmp (gpu->uuid, uuid) == 0)
      return gpu;
  struct gpu *gpu = calloc (1, sizeof *gpu);
  if (!gpu)
    return NULL;
  snprintf (gpu->uuid, sizeof gpu->uuid, "%s", uuid);
  pthread_mutex_init (&gpu->mutex, NULL);
  gpu->next = gpus;
  gpus = gpu;
  return gpu;
}

/* Whether a container has turns from now on. With others it has, once they are several.  */
static void
place (const struct gpu *gpu, struct tenant *tenant, bool is_new)
{
  if (gpu->count == 1 || !gpu->has_thread)
    tenant_leave (tenant);
  else if (is_new || (tenant->word & VCUDA_TURN_STATE) == VCUDA_TURN_NONE)
    {
      /* Its queue may hold work: nothing is granted before it drains.  */
      tenant->may_hold_work |= !is_new;
      tenant_renew_lease (tenant, bells_now ());
      tenant_write_word (tenant, VCUDA_TURN_WAIT, 0);
    }
}

void
gpu_add (struct gpu *gpu, struct container *container, unsigned index)
{
  struct tenant *tenant = calloc (1, sizeof *tenant);
  pthread_mutex_lock (&gpu->mutex);
  struct tenant **tenants
      = tenant ? realloc (gpu->tenants, ((size_t) gpu->count + 1) * sizeof *tenants) : NULL;
  if (tenants)
    {
      tenant->container = container;
      tenant->gpu = index;
      tenant->limits = &container->limits_at->gpu[index];
      /* An earlier keeper has written its turn: it may use the GPU since then.  */
      tenant->may_hold_work = tenant->limits->turn != 0;
      tenant->suspensions = __atomic_load_n (&container->limits_at->suspensions, __ATOMIC_SEQ_CST);
      tenant->held_ns = tenant->limits->turn_held_ns;
      tenant->waited_ns = tenant->waited_before_ns = tenant->limits->turn_waited_ns;
      /* No word of an earlier keeper: each tells the container something new.  */
      tenant->word = (uint32_t) bells_now () << 2;
      gpu->tenants = tenants;
      gpu->tenants[gpu->count++] = tenant;
      if (!gpu->has_thread)
        start_thread (gpu);
      for (int i = 0; i < gpu->count; i++)
        place (gpu, gpu->tenants[i], i == gpu->count - 1);
    }
  else
    free (tenant);
  turns_write_figures (gpu, bells_now ());
  pthread_mutex_unlock (&gpu->mutex);
  notify_thread (gpu);
}

void
gpu_remove (struct gpu *gpu, const struct container *container)
{
  pthread_mutex_lock (&gpu->mutex);
  for (int i = 0; i < gpu->count; i++)
    if (gpu->tenants[i]->container == container)
      {
        if (gpu->holder == gpu->tenants[i] || gpu->count == 2)
          gpu->holder = NULL;
        /* Its processes may outlive its record.  */
        tenant_leave (gpu->tenants[i]);
        if (gpu->interrupter == gpu->tenants[i])
          gpu->interrupter = NULL;
        free (gpu->tenants[i]);
        gpu->tenants[i] = gpu->tenants[--gpu->count];
        break;
      }
  if (gpu->count == 1)
    {
      gpu->together = false;
      tenant_leave (gpu->tenants[0]);
    }
  turns_write_figures (gpu, bells_now ());
  notify_thread (gpu);
  pthread_mutex_unlock (&gpu->mutex);
}

void
gpu_poll_now (const struct container *container)
{
  for (unsigned i = 0; i < container->gpu_count; i++)
    {
      struct gpu *gpu = gpu_of (container->uuid[i]);
      if (gpu)
        notify_thread (gpu);
    }
}

void
gpu_end_all (void)
{
  for (struct gpu *gpu = gpus; gpu; gpu = gpu->next)
    {
      pthread_mutex_lock (&gpu->mutex);
      for (int i = 0; i < gpu->count; i++)
        tenant_write_word (gpu->tenants[i], VCUDA_TURN_NONE, 0);
      /* Kept: no thread may write another word.  */
    }
}
