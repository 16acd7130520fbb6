"""The formats a workflow may be written in; each compiles to the same Workflow."""
