"""Records, claims and pages that tests write, and faults amid their writes."""
