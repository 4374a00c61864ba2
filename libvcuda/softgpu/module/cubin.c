/* What compiled code takes of device memory: its sections that are to be allocated, as ptxas writes
   them. Shared memory has sections as well; it lies in the multiprocessors.  */

#include <elf.h>
#include <string.h>

#include "module/module.h"

#define CUDA_MACHINE 190 /* EM_CUDA */

static bool
takes_memory (const Elf64_Shdr *section, const char *name)
{
  return (section->sh_type == SHT_PROGBITS || section->sh_type == SHT_NOBITS)
         && (section->sh_flags & SHF_ALLOC) && !(section->sh_flags & SHF_MASKPROC)
         && section->sh_size && strncmp (name, ".nv.shared", strlen (".nv.shared")) != 0;
}

/* Those of one kernel refer to it, or are its code.  */
static bool
of_kernel (const Elf64_Shdr *section)
{
  return (section->sh_flags & (SHF_EXECINSTR | SHF_INFO_LINK)) != 0;
}

CUresult
softgpu_read_cubin (struct CUmod_st *module, const void *image)
{
  const char *start = image; /* on any boundary */
  Elf64_Ehdr header;
  memcpy (&header, start, sizeof header);
  REQUIRE (header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == CUDA_MACHINE
               && header.e_shentsize == sizeof (Elf64_Shdr) && header.e_shstrndx < header.e_shnum,
           CUDA_ERROR_INVALID_IMAGE);
  Elf64_Shdr section;
  const char *sections = start + header.e_shoff;
  memcpy (&section, sections + header.e_shstrndx * sizeof section, sizeof section);
  const char *names = start + section.sh_offset;
  for (unsigned at = 0; at < header.e_shnum; at++)
    {
      memcpy (&section, sections + at * sizeof section, sizeof section);
      const char *name = names + section.sh_name;
      if (takes_memory (&section, name))
        REQUIRE_SUCCESS (softgpu_add_variable (module, name, strlen (name), section.sh_size,
                                               of_kernel (&section)));
    }
  return CUDA_SUCCESS;
}
