/* System calls that do not pass the replaced `syscall`, and leave errno alone.  */

#ifndef SOFTCLOCK_RAW_CALL_H
#define SOFTCLOCK_RAW_CALL_H

/* The kernel's answer: an error number is negative. For x86-64, as the whole software GPU.  */
static inline long
softclock_raw_call (long number, long a, long b, long c, long d, long e, long f)
{
  long answer;
  register long fourth __asm__ ("r10") = d;
  register long fifth __asm__ ("r8") = e;
  register long sixth __asm__ ("r9") = f;
  __asm__ volatile ("syscall"
                    : "=a"(answer)
                    : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                    : "rcx", "r11", "memory");
  return answer;
}

#define SOFTCLOCK_RAW(number, a, b, c, d)                                                          \
  softclock_raw_call ((number), (long) (a), (long) (b), (long) (c), (long) (d), 0, 0)

#endif
