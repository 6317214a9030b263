"""R, S and A: what every trust model shares, the trust models in `trusts`, the mechanisms in `mechanisms`."""
