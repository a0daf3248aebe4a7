"""Rollouts: one session's state machine, the producer that runs many, the reward, and the rows to train on."""
