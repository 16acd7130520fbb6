"""What can be asked of the master, one module a subject."""
