"""What an operator runs and what engines call back: the OCI hooks and the ``vcuda`` command."""
