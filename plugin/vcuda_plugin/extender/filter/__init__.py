"""kube-scheduler's filter, prioritize and preempt verbs, and their messages. Pure."""
