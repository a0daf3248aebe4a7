"""Where tasks come from: one package per source, and the real tables that several of them ask about."""
