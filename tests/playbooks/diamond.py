"""A playbook with two branches that share `ctx`; the step where they meet fails while a file is missing."""

from __future__ import annotations

__all__ = ["DIAMOND"]

DIAMOND = """
workload: {flag: ""}
workflow:
  - step: begin
    spec: {next_mode: inclusive}
    tool: {kind: noop, eval: [{else: {do: continue, set_ctx: {seen: [begin]}}}]}
    next: [left, right]
  - step: left
    tool: {kind: noop, eval: [{else: {do: continue, set_ctx: {left: 1}}}]}
    next: [{step: join}]
  - step: right
    tool: {kind: noop, eval: [{else: {do: continue, set_ctx: {right: 2}}}]}
    next: [{step: join}]
  - step: join
    when: "{{ ctx.left is defined and ctx.right is defined }}"
    tool:
      - add:
          kind: python
          args: {l: "{{ ctx.left }}", r: "{{ ctx.right }}", flag: "{{ workload.flag }}"}
          code: |
            import os
            assert not flag or os.path.exists(flag)
            result = l + r
      - note: {kind: noop, eval: [{else: {do: continue, set_ctx: {sum: "{{ results.add }}"}}}]}
"""
