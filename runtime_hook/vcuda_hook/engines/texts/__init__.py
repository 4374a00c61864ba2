"""Edits of TOML and JSON texts that keep every other byte. Pure."""
