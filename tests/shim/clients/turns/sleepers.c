/* sleepers: threads that sleep, one of which ends itself and one which another replaces.
   Prints which thread woke at which second of CLOCK_MONOTONIC since the start.  */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct timespec start;

static int
second (void)
{
  struct timespec now;
  clock_gettime (CLOCK_MONOTONIC, &now);
  long ns = (now.tv_sec - start.tv_sec) * 1000000000 + now.tv_nsec - start.tv_nsec;
  return (int) (ns / 1000000000);
}

static void *
sleeper (void *seconds)
{
  sleep ((unsigned) (size_t) seconds);
  printf ("[\"slept %zu\", %d], ", (size_t) seconds, second ());
  if ((size_t) seconds == 3)
    pthread_exit (NULL);
  return NULL;
}

static pthread_t
begin (size_t seconds)
{
  pthread_t thread;
  if (pthread_create (&thread, NULL, sleeper, (void *) seconds))
    exit (1);
  return thread;
}

int
main (void)
{
  clock_gettime (CLOCK_MONOTONIC, &start);
  printf ("[");
  pthread_t two = begin (2), three = begin (3), seven = begin (7);
  pthread_join (three, NULL);
  printf ("[\"joined 3\", %d], ", second ());
  pthread_join (two, NULL);
  pthread_t four = begin (4);
  usleep (1500000);
  printf ("[\"slept 1.5\", %d], ", second ());
  pthread_join (seven, NULL);
  pthread_join (four, NULL);
  printf ("[\"joined all\", %d]]\n", second ());
  return 0;
}
