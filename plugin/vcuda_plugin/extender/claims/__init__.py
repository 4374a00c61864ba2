"""ResourceClaimTemplates for pods that ask for shares by resources, as old manifests do."""
