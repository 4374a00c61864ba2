"""The only place that opens, stats or changes what a container or another user can reach.

Usage and limits pages, image files and /proc/<pid>. The safe form is built in: no link is followed,
no open waits for a file lease or a FIFO, an inode is checked before it is changed and changed by
descriptor, and everything that is read has a bound.
"""
