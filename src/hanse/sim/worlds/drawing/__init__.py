"""Drawing of work from traces: stretches, templates, sizes, windows, outages."""
