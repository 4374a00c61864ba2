"""The agent's view of the ledger: records read on change, and what is stale removed."""
