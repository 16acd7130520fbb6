"""How fast Rune is on this machine, beside how fast the machine is: `make bench`."""
