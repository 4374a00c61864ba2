"""Names of filters and orders, which the command line needs at every start.

The code behind them stands in ps_fields.py and top_screen.py: importing that takes as long as the
rest of the command's start.
"""

# Of `vcuda ps`: of ps_fields.FILTERS, and of ps_fields.ordered.
PS_FILTERS = ("id", "name", "image", "namespace", "pod", "gpu", "policy", "status")
PS_ORDERS = ("name", "gpu", "state", "core", "used", "memory", "waits", "created")
# Of `vcuda top`.
NAME, COMPUTE, MEMORY, WAITS = "name", "compute", "memory", "waits"
TOP_ORDERS = (NAME, COMPUTE, MEMORY, WAITS)
