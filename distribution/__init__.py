"""Makes the files of a release from a checkout: `make release`. Not in the package; needs no network."""
