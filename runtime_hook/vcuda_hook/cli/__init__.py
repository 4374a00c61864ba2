"""The `vcuda` command: its verbs and options, and the small verbs."""
