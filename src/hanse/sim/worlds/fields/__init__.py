"""Fields of the world file: their kinds, their table, their units, and the checks of a whole world."""
