"""Players: policies that step the environment to the end of its episodes, and what is measured of them."""
