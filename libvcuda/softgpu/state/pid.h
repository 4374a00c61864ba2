/* Processes of other pid namespaces: the host sees those of its containers, a container sees its
   own.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

struct softgpu_process
{
  uint64_t pid_namespace; /* inode */
  uint32_t pid;           /* in that namespace */
};

/* The process that the caller's /proc lists as PID, as it sees itself; false: there is none, or
   the caller must not look. A thread's number stands for its process, as in /proc.  */
bool softgpu_process_of (int pid, struct softgpu_process *process);

/* The inode of the pid namespace of PID, a name in /proc; 0 when it can't be seen.  */
uint64_t softgpu_pid_namespace (const char *pid);

/* PID of NAMESPACE (the inode of its pid namespace) as the caller sees it; 0 when it can't.  */
unsigned softgpu_pid_here (unsigned pid, uint64_t namespace);
