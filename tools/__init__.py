"""Tools of those who work on Hanse; nothing here is installed."""
