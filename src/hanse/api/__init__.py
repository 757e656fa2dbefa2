"""Records of the HTTP interface, shared by the members that answer and the clients that ask."""
