"""The user's code: importing and binding its functions, and which files and libraries it uses."""
