"""The node's pods: placement decisions, Events, containers without their share."""
