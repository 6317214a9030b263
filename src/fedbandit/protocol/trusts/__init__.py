"""The trust models, one file each. A new file here is a new trust model: see CONTRIBUTING."""
