"""The fault engine: plan, ledger, inject, land, hold, undo, settle."""
