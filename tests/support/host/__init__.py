"""Private hosts, namespaces, cgroups, terminals and engines' configuration files."""
