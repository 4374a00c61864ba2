"""The OCI hooks: edits laid into a container that is being created."""
