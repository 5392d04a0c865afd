"""What bench/compare and bench/growth share."""
