"""Figures as text for people: columns, sizes, ages, sensors. Pure."""
