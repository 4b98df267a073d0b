"""A second engine for tests: known ledgers, printed as vLLM would print them.

Draw a `Truth` with `strategies.truths()` (narrow it with `versions=`, `injections=`, `log_level=`), print it with
`lines.render(truth)`, optionally put it through `strategies.wrappers` or `wrappers.drop_lines`, and explain the text.
`truth.expected()` then gives every true value by `(Scope, quantity name)`: `Scope(dp, pp, tp)` is a rank, `Scope(dp)`
the engine's capacity. Each reported interval must contain the value found there; what is missing there did not exist
when the start-up ended. Lines may hide figures (scope `local`, INFO), so a report may know less than the truth, but
never something else. `lines.render_all` prints several start-ups into one log, `ledger.as_json` writes the truth down.
"""
