/* The state of one GPU's turns.  */

#pragma once

#include <pthread.h>

#include "tenant/tenant.h"

struct gpu
{
  char uuid[48];
  struct gpu *next;
  pthread_mutex_t mutex;
  bool has_thread;
  uint32_t changes; /* futex: tenants were added or removed */
  struct tenant **tenants;
  int count;
  struct tenant *holder;
  bool open;                         /* the holder is alone */
  bool revoked;                      /* the holder's word is WAIT, and its queue drains */
  bool pays;                         /* the holder has a turn, and did not begin its work alone */
  bool yields;                       /* it gave its turn on */
  bool sole;                         /* its turn is long, and ends when others want the GPU */
  bool together;                     /* those that have joined use it without turns */
  bool tried;                        /* a trial, which ends if that is no gain */
  uint64_t together_ns, checked_ns;  /* since when; when that was last checked */
  uint64_t apart_ns, apart_until_ns; /* how long not again; until when */
  struct tenant *interrupter;        /* for which the last turn ended early, and which has paid */
  uint64_t cut_in_ns;                /* since when the holder's turn is beside another's queue */
  int64_t divided_ns;                /* what the holder has paid since then */
  bool cuts_known;                   /* cutting in has been of use */
  unsigned cuts_useless;             /* how often in a row it was not */
  uint64_t cuts_useless_until_ns, cuts_pause_ns;
  uint64_t until_ns;            /* the end of the holder's turn */
  uint64_t least_until_ns;      /* from then on another can end it */
  uint64_t given_ns;            /* when the last turn began that was no continued one */
  uint64_t opened_ns, alone_ns; /* since when the holder was alone; for how long it was */
  uint64_t passed_ns;           /* until when time is accounted for */
  uint64_t lost_ns;             /* of all its tenants, ended ones too */
  uint64_t trimmed_ns;          /* when pools were last asked to give back what they keep */
  uint64_t figures_ns;
  bool new_figures; /* since then */
};

/* Whether a container wants a turn, other than BUT.  */
static inline bool
another_wants (const struct gpu *gpu, const struct tenant *but)
{
  for (int i = 0; i < gpu->count; i++)
    if (gpu->tenants[i] != but && gpu->tenants[i]->claim.wants)
      return true;
  return false;
}
