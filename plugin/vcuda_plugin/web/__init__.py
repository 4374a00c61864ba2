"""The common part of pages for browsers, of the agent and of the extender."""
