"""Metrics and pages over HTTP, served by an unprivileged process."""
