"""The HTTPS servers of the members: people and programs ask brokers and wardens here, with certificates."""
