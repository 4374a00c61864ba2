"""Programs that are suspended, resumed and moved, and kills amid it."""
