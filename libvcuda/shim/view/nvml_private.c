/* The private table that nvidia-smi takes from nvmlInternalGetExportTable.

   The table begins with its size in bytes; each further word is a function, or NULL. Newer drivers
   append functions: 535 has 244, 550 has 250, and nvidia-smi of 535, 550 and 580 calls the same
   functions at the same places. It checks the size, and takes a NULL for a function that the driver
   does not have.

   The shim hands out a copy that has the functions which are known to be needed and to name no
   process, and its own process lists. Everything else is NULL: the other functions are
   undocumented, and some list every container's processes (three at 213, a utilisation of each at
   145).  */

#include <stdint.h>
#include <string.h>

#include "pages/pages.h"
#include "view/nvml_processes.h"

#define PRIVATE_SLOTS 256

/* One entry of the private process lists.  */
struct private_process
{
  nvmlProcessDetail_v1_t detail;
  char name[4096];
};
_Static_assert (sizeof (struct private_process) == 4128,
                "as nvidia-smi of 535, 550 and 580 reads it");

struct private_table
{
  uint64_t bytes;
  void *function[PRIVATE_SLOTS - 1];
};

static const unsigned char nvidia_smi_table[16]
    = { 0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
        0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4 };

static void
write_private (void *entries, unsigned at, struct vcuda_process process)
{
  struct private_process *entry = (struct private_process *) entries + at;
  memset (entry, 0, sizeof *entry);
  entry->detail.pid = process.pid;
  entry->detail.usedGpuMemory = process.bytes;
  entry->detail.gpuInstanceId = entry->detail.computeInstanceId = 0xffffffff;
  nvmlReturn_t rc = real.nvmlSystemGetProcessName (process.pid, entry->name, sizeof entry->name);
  /* nvidia-smi leaves out an entry without a name.  */
  if (rc != NVML_SUCCESS || !entry->name[0])
    strcpy (entry->name, "[Not Found]");
}

static nvmlReturn_t
compute_list (nvmlDevice_t device, unsigned *count, struct private_process *entries)
{
  return vcuda_nvml_list (device, count, entries, write_private);
}

static nvmlReturn_t
empty_list (nvmlDevice_t device, unsigned *count, struct private_process *entries)
{
  return vcuda_nvml_list (device, count, entries, NULL);
}

/* The functions that are handed out: the shim's, or where that is NULL the driver's.  */
static const struct
{
  unsigned slot;
  void *own;
} handed_out[] = {
  { 23, NULL },                   /* two PCI addresses, answer: how two GPUs are connected */
  { 72, NULL },                   /* device, answer: its architecture */
  { 81, NULL },                   /* index, handle, flags */
  { 213, (void *) compute_list }, /* device, count, entries: compute processes */
  { 214, (void *) empty_list },   /* the same of graphics */
  { 215, (void *) empty_list },   /* the same of MPS */
  { 230, NULL },                  /* device, answer: the slot's PCIe generation */
  { 249, NULL },                  /* device, answer: its sparse mode */
};

/* Fills COPY with the entries that may be handed out. Threads that do so at once write the
   same.  */
static void
fill (struct private_table *copy, const struct private_table *driver)
{
  copy->bytes = driver->bytes < sizeof *copy ? driver->bytes : sizeof *copy;
  for (unsigned i = 0; i < sizeof handed_out / sizeof *handed_out; i++)
    {
      unsigned slot = handed_out[i].slot;
      void *own = handed_out[i].own;
      if (slot * sizeof (void *) < copy->bytes)
        copy->function[slot - 1] = own ? own : driver->function[slot - 1];
    }
}

nvmlReturn_t
vcuda_nvmlInternalGetExportTable (const void **table, const void *id)
{
  static struct private_table copy;
  const void *driver = NULL;
  if (!vcuda_ready ())
    return NVML_ERROR_UNKNOWN;
  /* What a driver returns for an id that it does not know.  */
  if (!table || !id || memcmp (id, nvidia_smi_table, sizeof nvidia_smi_table))
    return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t rc = real.nvmlInternalGetExportTable (&driver, id);
  if (rc != NVML_SUCCESS || !driver)
    return rc == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : rc;
  fill (&copy, driver);
  *table = &copy;
  return NVML_SUCCESS;
}
