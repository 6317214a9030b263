"""What a party's page shows, as plain data: of a silo its own, of mixer and analyzer what is released anyway."""
