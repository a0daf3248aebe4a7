"""The loop that joins producer, trainer and publisher; the run directory; resume; the demo."""
