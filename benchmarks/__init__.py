"""The measurements behind the numbers in the documentation. `make bench` runs all of them."""
