"""The agent's view of the ledger: reads records on change and removes stale ones."""
