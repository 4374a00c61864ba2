"""The table of shares: its rows, and how they are run in each model of the clock."""
