"""`python -m kvforensics`."""

from kvforensics.cli import main

main()
