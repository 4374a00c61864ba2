/* softgpu create --topology: how the GPUs of a new driver root are joined.  */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "create/files.h"
#include "create/request.h"

enum
{
  MOST_LINKS = 18, /* of one GPU to switches, as the largest have */
};

static uint32_t
value_of (const char *text, const char *all)
{
  char *end;
  errno = 0;
  unsigned long value = text ? strtoul (text, &end, 10) : 0;
  if (errno || !text || end == text || *end || !value || value > MOST_LINKS)
    fail (2, "--topology", all, "give whole numbers from 1 to 18, such as nvlink=4,pcie=2,numa=4");
  return (uint32_t) value;
}

void
read_topology (const char *text, struct softgpu_topology *topology)
{
  static char *const words[] = { "nvlink", "nvswitch", "pcie", "numa", NULL };
  uint32_t *const values[]
      = { &topology->nvlink, &topology->nvswitch, &topology->pcie, &topology->numa };
  char copy[4096], *rest = copy, *value;
  path_in (copy, "%s", text);
  *topology = (struct softgpu_topology){ .reported = 1 };
  while (*rest)
    {
      int word = getsubopt (&rest, words, &value);
      if (word < 0)
        fail (2, "--topology", text, "name nvlink, nvswitch, pcie or numa, each with its number");
      *values[word] = value_of (value, text);
    }
}

/* The kernel says in sysfs on which NUMA node a device is.  */
void
describe_numa (const struct request *request, const struct softgpu_state *state)
{
  for (unsigned g = 0; request->topology.numa && g < request->gpus; g++)
    {
      char path[4096], node[16];
      make_folders (path_in (path, "%s/sys/bus/pci/devices/0000:%02x:00.0", request->root,
                             state->gpu[g].pci_bus));
      snprintf (node, sizeof node, "%u\n", g / request->topology.numa);
      path_in (path, "%s/sys/bus/pci/devices/0000:%02x:00.0/numa_node", request->root,
               state->gpu[g].pci_bus);
      write_text (path, node);
    }
}
