"""The installed wrapper with runtimes that record or answer from files."""
