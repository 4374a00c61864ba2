"""The watch from outside: finds processes that use more of a GPU than their container holds."""
