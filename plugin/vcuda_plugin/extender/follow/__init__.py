"""Calls of the API server: lists, watches, single calls."""
