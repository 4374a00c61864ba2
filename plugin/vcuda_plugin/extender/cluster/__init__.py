"""The cluster's nodes and pods in memory."""
