/* The device memory that an image takes when it is loaded. Compiled code is ELF and states it: the
   sum of the sections that are to be allocated, without shared memory, which is in the
   multiprocessors. PTX is compiled by the driver and a fat binary is usually compressed: neither
   states a size.  */

#include "context/image_size.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define CUDA_MACHINE 190 /* EM_CUDA, which older elf.h lack */
#define AT_ONCE 32

static const char shared[] = ".nv.shared";

/* An image in memory has no stated end: its headers are trusted, as the driver trusts them.  */
struct source
{
  const char *memory; /* NULL: the file */
  int fd;
};

static bool
read_at (const struct source *source, uint64_t offset, void *to, size_t bytes)
{
  if (offset > INT64_MAX - bytes)
    return false;
  if (!source->memory)
    return pread (source->fd, to, bytes, (off_t) offset) == (ssize_t) bytes;
  memcpy (to, source->memory + offset, bytes);
  return true;
}

static bool
takes_memory (const struct source *source, const Elf64_Shdr *section, uint64_t names)
{
  char name[sizeof shared - 1];
  if ((section->sh_type != SHT_PROGBITS && section->sh_type != SHT_NOBITS)
      || !(section->sh_flags & SHF_ALLOC) || (section->sh_flags & SHF_MASKPROC))
    return false;
  return section->sh_type != SHT_NOBITS
         || !read_at (source, names + section->sh_name, name, sizeof name)
         || memcmp (name, shared, sizeof name) != 0;
}

static bool
is_compiled (const Elf64_Ehdr *header)
{
  return memcmp (header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_ident[EI_CLASS] == ELFCLASS64
         && header->e_machine == CUDA_MACHINE && header->e_shentsize == sizeof (Elf64_Shdr)
         && header->e_shstrndx < header->e_shnum;
}

static struct vcuda_image_size
size_of (const struct source *source)
{
  const struct vcuda_image_size unknown = { 0, false };
  struct vcuda_image_size size = { 0, true };
  Elf64_Ehdr header;
  Elf64_Shdr section[AT_ONCE];
  if (!read_at (source, 0, &header, sizeof header) || !is_compiled (&header)
      || !read_at (source, header.e_shoff + header.e_shstrndx * sizeof *section, section,
                   sizeof *section))
    return unknown;
  uint64_t names = section->sh_offset;
  for (unsigned first = 0; first < header.e_shnum; first += AT_ONCE)
    {
      unsigned count = header.e_shnum - first < AT_ONCE ? header.e_shnum - first : AT_ONCE;
      if (!read_at (source, header.e_shoff + first * sizeof *section, section,
                    count * sizeof *section))
        return unknown;
      for (unsigned at = 0; at < count; at++)
        if (takes_memory (source, &section[at], names)
            && __builtin_add_overflow (size.bytes, section[at].sh_size, &size.bytes))
          size.bytes = UINT64_MAX; /* more than any share */
    }
  return size;
}

struct vcuda_image_size
vcuda_image_in_memory (const void *image)
{
  struct source source = { .memory = image, .fd = -1 };
  /* A text may be shorter than any header.  */
  bool is_elf = image && strncmp (image, ELFMAG, SELFMAG) == 0;
  return is_elf ? size_of (&source) : (struct vcuda_image_size){ 0, false };
}

struct vcuda_image_size
vcuda_image_in_file (const char *path)
{
  int saved = errno;
  struct vcuda_image_size size = { 0, false };
  struct source source = { .fd = path ? open (path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1 };
  if (source.fd >= 0)
    {
      size = size_of (&source);
      close (source.fd);
    }
  errno = saved;
  return size;
}
