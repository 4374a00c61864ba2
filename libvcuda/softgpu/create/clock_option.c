/* softgpu create: the options of the GPUs' clock.  */

#include <string.h>

#include "create/files.h"
#include "create/option_value.h"
#include "create/request.h"

bool
read_clock_option (struct request *request, struct clock_options *options, int option,
                   const char *value)
{
  switch (option)
    {
    case 'k':
      option_word ("--clock", value, (const char *const[]){ "kind", "unkind", NULL });
      options->kind = value;
      return true;
    case 't':
      request->slice_ns = option_time ("--slice", value, 1000);
      options->of_slices = "--slice";
      return true;
    case 'w':
      request->switch_ns = option_time ("--switch-cost", value, 0);
      options->of_slices = options->not_kind = "--switch-cost";
      return true;
    case 'p':
      request->no_preemption = true;
      options->of_slices = options->not_kind = "--no-preemption";
      return true;
    case 'u':
      request->submit_ns = option_time ("--submit-time", value, 0);
      options->not_kind = "--submit-time";
      return true;
    case 'M':
      options->mps = true;
      options->not_kind = "--mps";
      return true;
    default:
      return false;
    }
}

void
choose_clock (struct request *request, const struct clock_options *options)
{
  bool kind = options->kind && strcmp (options->kind, "kind") == 0;
  if (kind && options->not_kind)
    fail (2, options->not_kind, "the kind clock has no such thing", "leave --clock kind out");
  if (options->mps && options->of_slices)
    fail (2, options->of_slices, "MPS has no time slices", "leave --mps out");
  request->clock = kind ? SOFTGPU_KIND : options->mps ? SOFTGPU_MPS : SOFTGPU_UNKIND;
  if (request->clock != SOFTGPU_UNKIND)
    request->switch_ns = 0;
  if (kind)
    request->submit_ns = 0;
}
