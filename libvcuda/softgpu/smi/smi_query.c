/* nvidia-smi --query-gpu: fields as comma-separated values.  */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi/smi.h"

enum
{
  TEXT = 200,
  MOST = 64, /* fields of a query */
};

struct field
{
  const char *name;
  const char *unit; /* in the header in brackets, behind each value */
  nvmlReturn_t (*read) (nvmlDevice_t device, unsigned index, char *text);
};

#define READER(function)                                                                           \
  static nvmlReturn_t function (__attribute__ ((unused)) nvmlDevice_t device,                      \
                                __attribute__ ((unused)) unsigned index, char *text)

/* A reader of what one CALL of NVML puts into `found`.  */
#define READ_CALL(function, type, call, format, shown)                                             \
  READER (function)                                                                                \
  {                                                                                                \
    type found = { 0 };                                                                            \
    nvmlReturn_t rc = nvml.call;                                                                   \
    snprintf (text, TEXT, format, shown);                                                          \
    return rc;                                                                                     \
  }

READER (read_index)
{
  snprintf (text, TEXT, "%u", index);
  return NVML_SUCCESS;
}

READER (read_name) { return nvml.name (device, text, TEXT); }

READER (read_uuid) { return nvml.uuid (device, text, TEXT); }

READER (read_driver) { return nvml.driverVersion (text, TEXT); }

READ_CALL (read_count, unsigned, count (&found), "%u", found)
READ_CALL (read_bus, nvmlPciInfo_t, pci (device, &found), "%s", found.busId)
READ_CALL (read_total, nvmlMemory_t, memory (device, &found), "%llu", found.total >> 20)
READ_CALL (read_used, nvmlMemory_t, memory (device, &found), "%llu", found.used >> 20)
READ_CALL (read_free, nvmlMemory_t, memory (device, &found), "%llu", found.free >> 20)
READ_CALL (read_utilisation, nvmlUtilization_t, utilisation (device, &found), "%u", found.gpu)
READ_CALL (read_memory_utilisation, nvmlUtilization_t, utilisation (device, &found), "%u",
           found.memory)
READ_CALL (read_temperature, unsigned, temperature (device, NVML_TEMPERATURE_GPU, &found), "%u",
           found)
READ_CALL (read_power, unsigned, power (device, &found), "%.2f", found / 1000.0)
READ_CALL (read_power_limit, unsigned, powerLimit (device, &found), "%.2f", found / 1000.0)

static const struct field fields[] = {
  { "index", NULL, read_index },
  { "name", NULL, read_name },
  { "gpu_name", NULL, read_name },
  { "uuid", NULL, read_uuid },
  { "gpu_uuid", NULL, read_uuid },
  { "count", NULL, read_count },
  { "driver_version", NULL, read_driver },
  { "pci.bus_id", NULL, read_bus },
  { "gpu_bus_id", NULL, read_bus },
  { "memory.total", "MiB", read_total },
  { "memory.used", "MiB", read_used },
  { "memory.free", "MiB", read_free },
  { "utilization.gpu", "%", read_utilisation },
  { "utilization.memory", "%", read_memory_utilisation },
  { "temperature.gpu", NULL, read_temperature },
  { "power.draw", "W", read_power },
  { "power.limit", "W", read_power_limit },
};

static const struct field *
find (const char *name)
{
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (strcmp (fields[i].name, name) == 0)
      return &fields[i];
  return NULL;
}

int
query (const char *list, const char *formats, const char *only)
{
  bool header = !strstr (formats, "noheader"), units = !strstr (formats, "nounits");
  const struct field *wanted[MOST];
  int count = 0;
  char *copy = strdup (list);
  for (char *at = copy, *name; (name = strsep (&at, ",")) && count < MOST;)
    {
      name += strspn (name, " ");
      wanted[count] = find (name);
      if (!wanted[count++])
        {
          fprintf (stderr,
                   "nvidia-smi: --query-gpu: no field \"%s\"; ask for index, uuid, name, "
                   "memory.total, memory.used, memory.free, utilization.gpu or driver_version\n",
                   name);
          free (copy);
          return 2;
        }
    }
  free (copy);
  for (int i = 0; header && i < count; i++)
    {
      printf ("%s%s", i ? ", " : "", wanted[i]->name);
      if (wanted[i]->unit)
        printf (" [%s]", wanted[i]->unit);
    }
  if (header)
    putchar ('\n');
  nvmlDevice_t device;
  for (unsigned index = 0; find_device (&index, only, &device); index++)
    {
      for (int i = 0; i < count; i++)
        {
          char text[TEXT] = "";
          int known = wanted[i]->read (device, index, text) == NVML_SUCCESS;
          printf ("%s%s", i ? ", " : "", known ? text : "[N/A]");
          if (known && units && wanted[i]->unit)
            printf (" %s", wanted[i]->unit);
        }
      putchar ('\n');
    }
  return 0;
}
