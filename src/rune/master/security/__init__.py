"""Who may do what on the master, and what was done."""
