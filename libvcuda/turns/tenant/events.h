/* Appends to the event log, STATE_DIR/events.jsonl. Its format is in
   oci/vcuda_oci/ledger/events.py.  */

#pragma once

/* Without it there are no events.  */
void events_begin (const char *state_dir);

/* One event about the allocation ID on the GPU with this UUID. TEXT needs no escapes in JSON.  */
void events_record (const char *kind, const char *id, const char *uuid, const char *text);
