/* By which the host knows this file, on disk or in the memory of a process, from the driver's own
   libcuda: 'vcuda doctor' looks for it (runtime_hook/vcuda_hook/live/shim_mark.py).  */

#include "vcuda_abi.h"

#define TEXT_OF(number) #number
#define AS_TEXT(macro) TEXT_OF (macro)

/* The NUL in front keeps a longer text that ends in these words from being taken for it.  */
__attribute__ ((used)) static const char mark[]
    = "\0vcuda shim, version " VCUDA_VERSION ", pages " AS_TEXT (VCUDA_ABI_VERSION);
