"""Workers of an executor: processes in the league, the channel to them, and who gets which call."""
