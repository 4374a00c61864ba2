/* nvidia-smi --query-gpu: fields as comma-separated values.  */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi/smi.h"

enum
{
  TEXT = 200
};

struct field
{
  const char *name;
  const char *unit; /* in the header in brackets, behind each value */
  nvmlReturn_t (*read) (nvmlDevice_t device, unsigned index, char *text);
};

#define READER(function)                                                                           \
  static nvmlReturn_t function (nvmlDevice_t device, unsigned index, char *text)

READER (read_index)
{
  (void) device;
  snprintf (text, TEXT, "%u", index);
  return NVML_SUCCESS;
}

READER (read_name)
{
  (void) index;
  return nvml.name (device, text, TEXT);
}

READER (read_uuid)
{
  (void) index;
  return nvml.uuid (device, text, TEXT);
}

READER (read_driver)
{
  (void) device, (void) index;
  return nvml.driverVersion (text, TEXT);
}

READER (read_count)
{
  (void) device, (void) index;
  unsigned count = 0;
  nvmlReturn_t rc = nvml.count (&count);
  snprintf (text, TEXT, "%u", count);
  return rc;
}

READER (read_bus)
{
  (void) index;
  nvmlPciInfo_t pci;
  nvmlReturn_t rc = nvml.pci (device, &pci);
  if (rc == NVML_SUCCESS)
    snprintf (text, TEXT, "%s", pci.busId);
  return rc;
}

static nvmlReturn_t
memory (nvmlDevice_t device, char *text, int which)
{
  nvmlMemory_t all;
  nvmlReturn_t rc = nvml.memory (device, &all);
  if (rc == NVML_SUCCESS)
    snprintf (text, TEXT, "%llu",
              (which == 0   ? all.total
               : which == 1 ? all.used
                            : all.free)
                  >> 20);
  return rc;
}

READER (read_total)
{
  (void) index;
  return memory (device, text, 0);
}

READER (read_used)
{
  (void) index;
  return memory (device, text, 1);
}

READER (read_free)
{
  (void) index;
  return memory (device, text, 2);
}

READER (read_utilisation)
{
  (void) index;
  nvmlUtilization_t rates;
  nvmlReturn_t rc = nvml.utilisation (device, &rates);
  if (rc == NVML_SUCCESS)
    snprintf (text, TEXT, "%u", rates.gpu);
  return rc;
}

READER (read_memory_utilisation)
{
  (void) index;
  nvmlUtilization_t rates;
  nvmlReturn_t rc = nvml.utilisation (device, &rates);
  if (rc == NVML_SUCCESS)
    snprintf (text, TEXT, "%u", rates.memory);
  return rc;
}

READER (read_temperature)
{
  (void) index;
  unsigned celsius = 0;
  nvmlReturn_t rc = nvml.temperature (device, NVML_TEMPERATURE_GPU, &celsius);
  snprintf (text, TEXT, "%u", celsius);
  return rc;
}

READER (read_power)
{
  (void) index;
  unsigned milliwatts = 0;
  nvmlReturn_t rc = nvml.power (device, &milliwatts);
  snprintf (text, TEXT, "%.2f", milliwatts / 1000.0);
  return rc;
}

READER (read_power_limit)
{
  (void) index;
  unsigned milliwatts = 0;
  nvmlReturn_t rc = nvml.powerLimit (device, &milliwatts);
  snprintf (text, TEXT, "%.2f", milliwatts / 1000.0);
  return rc;
}

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

enum
{
  MOST = 64
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
query (const char *list, struct format format, const char *only)
{
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
  for (int i = 0; format.header && i < count; i++)
    {
      printf ("%s%s", i ? ", " : "", wanted[i]->name);
      if (wanted[i]->unit)
        printf (" [%s]", wanted[i]->unit);
    }
  if (format.header)
    putchar ('\n');
  unsigned devices = 0;
  nvml.count (&devices);
  for (unsigned index = 0; index < devices; index++)
    {
      nvmlDevice_t device;
      if (nvml.handle (index, &device) != NVML_SUCCESS || !chosen (device, index, only))
        continue;
      for (int i = 0; i < count; i++)
        {
          char text[TEXT] = "";
          int known = wanted[i]->read (device, index, text) == NVML_SUCCESS;
          printf ("%s%s", i ? ", " : "", known ? text : "[N/A]");
          if (known && format.units && wanted[i]->unit)
            printf (" %s", wanted[i]->unit);
        }
      putchar ('\n');
    }
  return 0;
}
