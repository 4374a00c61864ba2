/* A command of version 3: a module, a verb, up to two words, and options.  */

#pragma once

#include "mps/daemon.h"

enum
{
  VERB_WORDS = 2,
  VERB_OPTIONS = 8,
};

struct command
{
  const struct connection *user;
  FILE *out;
  const char *module, *verb;
  const char *word[VERB_WORDS]; /* NULL: not given */
  unsigned options;
  const char *name[VERB_OPTIONS], *value[VERB_OPTIONS]; /* "": a flag */
};

/* A verb of a module: prints, and returns the exit status. changes: for privileged users only.  */
struct verb
{
  const char *module, *name;
  bool changes;
  int (*run) (const struct command *command);
};

/* Each list ends with an entry without a name.  */
extern const struct verb mps_server_verbs[], mps_space_verbs[], mps_client_verbs[],
    mps_partition_verbs[];

/* The value of an option; NULL: not given.  */
const char *mps_option (const struct command *command, const char *name);

/* Prints "Error: ..." and returns 1.  */
int mps_wrong (const struct command *command, const char *format, ...)
    __attribute__ ((format (printf, 2, 3)));

/* Prints one line of a list, as columns or as --format=csv. A header is left out with noheader.  */
void mps_row (const struct command *command, bool is_header, unsigned count,
              const char *const cell[]);

/* The server of this name; NULL: there is none, and an error was printed.  */
struct server *mps_named_server (const struct command *command, const char *name);

/* The GPU that the option `device` names, by its index in `gpu` of the daemon; -1: none, and an
   error was printed.  */
int mps_named_device (const struct command *command);

const char *mps_status (const struct server *server);

/* Sets the limits that the options name; returns the exit status.  */
int mps_set_limits (const struct command *command, struct limits *limits);
