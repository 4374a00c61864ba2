"""The only place that opens, stats or changes what a container or another user can reach.

It handles usage and limits pages, image files and /proc/<pid>. Its functions follow no link on the
host, wait in no open for a file lease or a FIFO, check an inode before they change it by its
descriptor, and bound everything that they read.
"""
