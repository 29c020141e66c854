"""Ways to run the product: the command line, all services in one process, Ray Serve, the demo."""
