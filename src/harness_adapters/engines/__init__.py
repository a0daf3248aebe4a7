"""Who serves tokens: the embedded engine, the scripted one, and what publishes adapter versions to them."""
