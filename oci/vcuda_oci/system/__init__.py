"""The host's files, locks, kernel tables and settings. Nothing here knows of containers or GPUs."""
