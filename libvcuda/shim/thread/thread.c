/* The shim's variable of each thread, and how it is found.  */

#include "thread/thread.h"

__attribute__ ((used)) __thread struct vcuda_thread vcuda_thread_state
    = { .credit = { .gpu = -1 } };

#ifdef __x86_64__

intptr_t vcuda_thread_offset;

/* Returns the address in %rax and preserves the other general registers, as the loader's function
   does; that function wants an aligned stack.  */
__asm__ (".pushsection .text\n\t"
         ".p2align 4\n\t"
         ".hidden vcuda_thread_by_descriptor\n\t"
         ".globl vcuda_thread_by_descriptor\n\t"
         ".type vcuda_thread_by_descriptor, @function\n"
         "vcuda_thread_by_descriptor:\n\t"
         ".cfi_startproc\n\t"
         "push %rbp\n\t"
         ".cfi_def_cfa_offset 16\n\t"
         ".cfi_offset %rbp, -16\n\t"
         "mov %rsp, %rbp\n\t"
         ".cfi_def_cfa_register %rbp\n\t"
         "and $-16, %rsp\n\t"
         "lea vcuda_thread_state@tlsdesc(%rip), %rax\n\t"
         "call *vcuda_thread_state@tlscall(%rax)\n\t"
         "add %fs:0, %rax\n\t"
         "leave\n\t"
         ".cfi_def_cfa %rsp, 8\n\t"
         "ret\n\t"
         ".cfi_endproc\n\t"
         ".size vcuda_thread_by_descriptor, .-vcuda_thread_by_descriptor\n\t"
         ".popsection");

struct descriptor
{
  void *function;
  intptr_t argument;
};

/* A descriptor's argument is the offset from the thread pointer, which is negative, where the
   variable is in static TLS, and a pointer elsewhere. The loader may fill in a descriptor only at
   its first call, so call it here: that call takes the loader's lock, which a launch in a signal
   handler must not wait for.  */
__attribute__ ((constructor)) static void
find_offset (void)
{
  const struct descriptor *descriptor;
  char *pointer, *found = (char *) vcuda_thread ();
  __asm__ ("lea vcuda_thread_state@tlsdesc(%%rip), %0" : "=r"(descriptor));
  __asm__ ("mov %%fs:0, %0" : "=r"(pointer));
  if ((intptr_t) descriptor < 0) /* linked into a program: the linker wrote the offset here */
    vcuda_thread_offset = (intptr_t) descriptor;
  else if (descriptor->argument < 0 && pointer + descriptor->argument == found)
    vcuda_thread_offset = descriptor->argument;
}

#endif
