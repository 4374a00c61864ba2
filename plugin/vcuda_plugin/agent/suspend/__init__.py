"""Containers that give up the GPU's memory by themselves: the idle ones, and those that rotate."""
