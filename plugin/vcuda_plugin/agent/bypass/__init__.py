"""The watch from outside: processes that use more of a GPU than their container holds."""
