"""How a command ended, as whoever calls it can tell. 0 is done."""

#: The check found something.
FOUND = 1
#: The command line, the configuration or the installation is wrong: trying again does not help.
USAGE = 2
#: Something that was needed could not be reached: trying again may help.
UNREACHABLE = 3
#: It ended before its end, or what it should judge by is not all there.
INCOMPLETE = 4
