"""The tables of one service: their engines and limits, and calls that concern whole tables."""
