"""The host's files, locks, kernel tables and settings. No containers, no GPUs."""
