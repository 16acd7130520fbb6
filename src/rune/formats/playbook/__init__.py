"""The playbook format: YAML of NoETL's DSL v2, compiled to the same Workflow as the JSON graph."""
