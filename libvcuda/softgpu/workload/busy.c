/* The command `busy`: its threads, and what it prints.  */

#include "workload/busy.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct thread
{
  pthread_t thread;
  CUcontext context;
  struct loop loop;
};

static void *
run_thread (void *argument)
{
  struct thread *thread = argument;
  prctl (PR_SET_TIMERSLACK, 1ul);
  must (gpu.ctxSetCurrent (thread->context), "cuCtxSetCurrent");
  run_loop (&thread->loop);
  return NULL;
}

/* The calling thread is the first one.  */
static void
run_all (struct thread *threads, unsigned count)
{
  double start = seconds_now ();
  CUcontext context;
  must (gpu.ctxGetCurrent (&context), "cuCtxGetCurrent");
  for (unsigned i = 0; i < count; i++)
    {
      threads[i].loop.start = start;
      threads[i].context = context;
      if (i && pthread_create (&threads[i].thread, NULL, run_thread, &threads[i]) != 0)
        FAIL (1, "--threads: cannot be created; give fewer\n");
    }
  run_thread (&threads[0]);
  for (unsigned i = 1; i < count; i++)
    pthread_join (threads[i].thread, NULL);
}

static void
end_early (int number)
{
  (void) number;
  interrupted = 1;
}

static int
compare (const void *one, const void *other)
{
  double a = *(const double *) one, b = *(const double *) other;
  return (a > b) - (a < b);
}

/* Of all threads together.  */
static void
print_requests (const struct thread *threads, unsigned count)
{
  uint64_t all = 0;
  for (unsigned i = 0; i < count; i++)
    all += threads[i].loop.requests.count;
  double *seconds = calloc (all + 1, sizeof *seconds);
  if (!seconds || !all)
    return;
  uint64_t at = 0;
  for (unsigned i = 0; i < count; i++)
    {
      const struct requests *requests = &threads[i].loop.requests;
      memcpy (seconds + at, requests->seconds, requests->count * sizeof *seconds);
      at += requests->count;
    }
  qsort (seconds, all, sizeof *seconds, compare);
  printf (", \"requests\": %llu, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f",
          (unsigned long long) all, seconds[all / 2] * 1e6, seconds[all - 1 - all / 100] * 1e6,
          seconds[all - 1] * 1e6);
  free (seconds);
}

static void
print_report (const struct options *options, const struct thread *threads)
{
  uint64_t kernels = 0, waits = 0;
  double wall_s = 0, gap_s = 0, longest_s = 0;
  for (unsigned i = 0; i < options->threads; i++)
    {
      const struct loop *loop = &threads[i].loop;
      kernels += loop->finished * loop->work.kernels;
      waits += loop->waits;
      gap_s += loop->gap_s;
      wall_s = loop->wall_s > wall_s ? loop->wall_s : wall_s;
      longest_s = loop->longest_s > longest_s ? loop->longest_s : longest_s;
    }
  double gpu_s = (double) kernels * (double) options->kernel_us / 1e6;
  printf ("{\"kernels\": %llu, \"kernel_us\": %llu, \"gpu_seconds\": %.6f, "
          "\"wall_seconds\": %.6f, \"share\": %.6f, \"waits\": %llu, \"gap_seconds\": %.6f, "
          "\"longest_us\": %.1f",
          (unsigned long long) kernels, (unsigned long long) options->kernel_us, gpu_s, wall_s,
          wall_s > 0 ? gpu_s / wall_s : 0, (unsigned long long) waits, gap_s, longest_s * 1e6);
  if (options->every_ms)
    print_requests (threads, (unsigned) options->threads);
  printf ("}\n");
}

int
keep_busy (const struct options *options)
{
  use_device (options->ordinal);
  CUfunction spin = load_spin ();
  CUdeviceptr memory;
  if (options->bytes)
    must (gpu.memAlloc (&memory, options->bytes), "cuMemAlloc");
  struct thread *threads
      = must_allocate (options->threads, sizeof *threads, "--threads", "threads");
  for (unsigned i = 0; i < options->threads; i++)
    prepare_loop (&threads[i].loop, options, spin);
  signal (SIGINT, end_early);
  while (options->wait_file && access (options->wait_file, F_OK) != 0 && !interrupted)
    sleep_for (0.002);
  run_all (threads, (unsigned) options->threads);
  print_report (options, threads);
  return 0;
}
