"""One error for everything that a user can mend: one line that says what, where and how."""

from __future__ import annotations


class VcudaError(Exception):
    """Raised where the facts are, caught once, in ``main``. Prints as ``where: what; mend``."""

    def __init__(self, what: str, where: str, mend: str) -> None:
        super().__init__(what, where, mend)
        self.what, self.where, self.mend = what, where, mend

    def __str__(self) -> str:
        # A name from a hostile file must not break the line in two.
        line = f"{self.where}: {self.what}; {self.mend}"
        return "".join(c if c.isprintable() else "?" for c in line)
