"""The ledger: allocation records, claims, placement decision files, liveness, events."""
