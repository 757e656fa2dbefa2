"""The doors: HTTPS with certificates, where people and programs ask brokers and wardens."""
