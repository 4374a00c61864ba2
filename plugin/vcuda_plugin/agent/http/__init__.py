"""Metrics and pages over HTTP, served by a process without rights."""
