"""The settings, routes and views."""
