"""Quotas of namespaces: their limits and what is used of them."""
