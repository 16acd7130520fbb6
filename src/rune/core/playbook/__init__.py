"""What a playbook step does, without doing it: which task comes next, what it writes, which way to go on."""
