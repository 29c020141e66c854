"""`python -m services.launch` is the `pergamon` command, where the script is not on the path."""

from services.launch.entry import main

main()
