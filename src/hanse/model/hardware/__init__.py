"""Hardware of machines: devices that a node may assign, and facts that a runner reports."""
