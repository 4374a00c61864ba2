"""The extender, which stops itself where no signal from outside could: after a look at its lease
that said it may bind, and before what it does then.

The file that is named first says after how many such looks; none: it goes on.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from vcuda_plugin.extender import main
from vcuda_plugin.extender.bind.leader import Leader

LOOKS = Path(sys.argv[1])
_why_not = Leader.why_not


def why_not(leader: Leader) -> str:
    why = _why_not(leader)
    if not why and LOOKS.exists():
        left = int(LOOKS.read_text()) - 1
        LOOKS.write_text(str(left))
        if not left:
            LOOKS.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
    return why


if __name__ == "__main__":
    Leader.why_not = why_not  # type: ignore[method-assign,assignment]
    sys.exit(main.main(sys.argv[2:]))
