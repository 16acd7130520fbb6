"""What starts executions, and what wakes them: schedules, webhooks and resume links."""
