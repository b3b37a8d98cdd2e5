"""What several kinds of tests share and no product code needs."""
