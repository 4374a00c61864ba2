/* The text by which the host recognises this file, on disk or in the memory of a process: 'vcuda
   doctor' looks for it (runtime_hook/vcuda_hook/live/shim_mark.py).  */

#include "vcuda_abi.h"

#define TEXT_OF(number) #number
#define AS_TEXT(macro) TEXT_OF (macro)

/* The NUL in front: a longer text that ends in these words is no match.  */
__attribute__ ((used)) static const char mark[]
    = "\0vcuda shim, version " VCUDA_VERSION ", pages " AS_TEXT (VCUDA_ABI_VERSION);
