"""What every service needs and no service owns. Knows no service by name."""
