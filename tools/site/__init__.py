"""The pages of the documentation site, gathered from `docs/` and from the documents beside `README.md`."""
