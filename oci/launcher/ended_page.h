/* Removes the folder of an ended container.  */

#ifndef VCUDA_ENDED_PAGE_H
#define VCUDA_ENDED_PAGE_H

/* Removes `folder` and keeps a handle of its usage page in <state-dir>/ended while a process has
   the page mapped.  */
void remove_pages (const char *state_dir, const char *folder);

#endif
