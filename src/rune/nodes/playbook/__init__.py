"""The node types that playbooks compile to; no workflow names them."""
