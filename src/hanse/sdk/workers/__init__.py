"""Workers of an executor: processes in the league, the channel to them, and their share of the calls."""
