"""The tools of playbooks, one file a kind; a new one is a new file."""
