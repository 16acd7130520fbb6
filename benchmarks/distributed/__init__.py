"""How fast Rune is on RabbitMQ and Redis, beside how fast a bare client is: `make bench-distributed`."""
