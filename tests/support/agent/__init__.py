"""The node agent, the claim server, and clients of the agent's pages."""
