"""The agent's child processes: how they are forked, and the rights that each retains."""
