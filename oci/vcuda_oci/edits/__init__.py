"""From an allocation and host facts to changes of config.json, or to a CDI spec: pure."""
