/* The moments of events.  */

#include "stream/stamp.h"

#include "stream/ipc_event.h"

static CUevent *
entry_of (struct device *device, uint64_t number)
{
  return &device->recorded[number % SOFTGPU_COMMANDS];
}

static CUevent *
own_entry (CUevent event)
{
  return entry_of (&driver.device[event->context->device], event->record - 1);
}

void
softgpu_harvest (CUevent event)
{
  struct attachment *tie = &driver.tie;
  unsigned gpu = softgpu_gpu_of_event (event);
  if (event->stamped || !event->recorded
      || !softgpu_command_done (tie->state, gpu, tie->slot, event->record - 1))
    return;
  const struct softgpu_command *command
      = softgpu_command_at (tie->state, gpu, tie->slot, event->record - 1);
  event->time_ns = command->stamp_ns;
  event->waited_ns = command->waited_ns;
  event->stamped = true;
  *own_entry (event) = NULL;
}

void
softgpu_abandon (CUevent event)
{
  if (event->recorded && !event->stamped)
    *own_entry (event) = NULL;
}

void
softgpu_free_entry (struct device *device)
{
  uint64_t number = softgpu_own_slot (&driver.tie)->gpu[index_of_gpu (device)].head;
  CUevent *entry = entry_of (device, number);
  if (*entry)
    softgpu_harvest (*entry);
}

void
softgpu_set_record (CUevent event, uint64_t record)
{
  softgpu_harvest (event);
  softgpu_abandon (event);
  event->recorded = true;
  event->stamped = false;
  event->record = record;
  *own_entry (event) = event;
  if (event->shared)
    softgpu_publish_record (event);
}
