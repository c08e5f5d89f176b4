"""The user's code: importing and binding functions, and the files and libraries in use."""
