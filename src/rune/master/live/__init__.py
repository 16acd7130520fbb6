"""What people see while it happens: the tail of the history, once for all who look."""
