"""What a party's page shows, as plain data: a silo's own data, or what a mixer or an analyzer releases anyway."""
