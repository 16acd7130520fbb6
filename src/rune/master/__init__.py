"""The master: the service that people and programs talk to."""
