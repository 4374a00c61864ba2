"""`vcuda simulate`: a trace of pods, placed on a described cluster by the extender's own code."""
