/* Removes the mount points that the low-level runtime made in a container's root.  */

#pragma once

/* Removes the mount points that a note names. note: its descriptor, at any position. pidfd: of the
   container's first process, to wait for its end; -1: it has ended.  */
void remove_mount_points (int note, int pidfd);
