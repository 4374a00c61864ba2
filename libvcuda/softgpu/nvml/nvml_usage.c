/* NVML: utilisation and sensors. The sensors' values are computed from the load: they lie between
   those of an idle card and of a busy one.  */

#include "nvml/monitor.h"

enum
{
  IDLE_MILLIWATTS = 50000,
  BUSY_MILLIWATTS = 300000,
  IDLE_CELSIUS = 30,
  BUSY_CELSIUS = 65,
  SM_MHZ = 1980,
  MEMORY_MHZ = 2619,
};

/* Percent of the last second in which DEVICE worked.  */
static unsigned
utilisation_of (nvmlDevice_t device)
{
  struct attachment *tie = &monitor.tie;
  softgpu_lock (tie);
  uint64_t now = softgpu_now ();
  softgpu_advance (tie->state, device->gpu, now);
  unsigned percent = softgpu_percent_busy (tie->state->gpu[device->gpu].period, now);
  softgpu_unlock (tie);
  return percent;
}

static unsigned
between (unsigned idle, unsigned busy, nvmlDevice_t device)
{
  return idle + (busy - idle) * utilisation_of (device) / 100;
}

nvmlReturn_t
nvmlDeviceGetUtilizationRates (nvmlDevice_t device, nvmlUtilization_t *utilisation)
{
  REQUIRE_DEVICE_AND (device, utilisation);
  REQUIRE (!softgpu_is_mig (device), NVML_ERROR_NOT_SUPPORTED);
  utilisation->gpu = utilisation_of (device);
  utilisation->memory = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetEncoderUtilization (nvmlDevice_t device, unsigned *utilisation, unsigned *period_us)
{
  REQUIRE_DEVICE_AND (device, utilisation && period_us);
  *utilisation = 0;
  *period_us = 1000000;
  return NVML_SUCCESS;
}

ALSO_NAMED (nvmlDeviceGetDecoderUtilization, nvmlDeviceGetEncoderUtilization);

nvmlReturn_t
nvmlDeviceGetTemperatureV (nvmlDevice_t device, nvmlTemperature_t *temperature)
{
  REQUIRE_DEVICE_AND (device, temperature);
  REQUIRE (temperature->version == nvmlTemperature_v1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  REQUIRE (temperature->sensorType == NVML_TEMPERATURE_GPU, NVML_ERROR_INVALID_ARGUMENT);
  temperature->temperature = (int) between (IDLE_CELSIUS, BUSY_CELSIUS, device);
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetTemperature (nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned *celsius)
{
  nvmlTemperature_t temperature = { .version = nvmlTemperature_v1, .sensorType = sensor };
  REQUIRE_SUCCESS (nvmlDeviceGetTemperatureV (device, &temperature));
  REQUIRE (celsius, NVML_ERROR_INVALID_ARGUMENT);
  *celsius = (unsigned) temperature.temperature;
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetClockInfo (nvmlDevice_t device, nvmlClockType_t type, unsigned *megahertz)
{
  REQUIRE_DEVICE_AND (device, megahertz && type < NVML_CLOCK_COUNT);
  *megahertz = type == NVML_CLOCK_MEM ? MEMORY_MHZ : SM_MHZ;
  return NVML_SUCCESS;
}

ALSO_NAMED (nvmlDeviceGetMaxClockInfo, nvmlDeviceGetClockInfo);

ANSWER (GetPowerUsage, unsigned, between (IDLE_MILLIWATTS, BUSY_MILLIWATTS, device))
ANSWER (GetEnforcedPowerLimit, unsigned, BUSY_MILLIWATTS)
ANSWER (GetPowerManagementLimit, unsigned, BUSY_MILLIWATTS)
ANSWER (GetPowerManagementDefaultLimit, unsigned, BUSY_MILLIWATTS)
ANSWER (GetPowerManagementMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
ANSWER (GetPerformanceState, nvmlPstates_t, NVML_PSTATE_0)
ANSWER (GetPowerState, nvmlPstates_t, NVML_PSTATE_0)

/* No field is known here; each says so for itself, as the function does for the call.  */
nvmlReturn_t
nvmlDeviceGetFieldValues (nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
  REQUIRE_DEVICE_AND (device, values && count > 0);
  for (int i = 0; i < count; i++)
    values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
  return NVML_SUCCESS;
}
